// Package dir keeps blobs in a folder: each one is the file DIR/sha256/NAME, mode 0600 in folders of mode 0700.
//
// Every access goes through an os.Root of that folder and takes nothing but names of 64 hex digits, so nothing outside is reached. A link,
// folder or device in the place of a blob is BLOB_CORRUPT and never followed; files of other names are not touched and not listed.
//
// A blob is written to a temporary file, synced, renamed and made durable with its folder before Put returns: a process that is killed
// leaves a temporary file and no blob. Open removes temporary files that nobody has written to for an hour.
//
// What is set aside is renamed into the folder aside, under a name that is its own and that nothing else ever has. A folder of checkpoints has a
// file STORE with the id of the store whose checkpoints they are; OpenOwned refuses every other one.
package dir
