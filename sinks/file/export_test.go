package file

// FolderName for tests.
var FolderName = folderName

// MaxSyncs for tests.
const MaxSyncs = maxSyncs
