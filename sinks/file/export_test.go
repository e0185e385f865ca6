package file

// FolderName for tests.
var FolderName = folderName
