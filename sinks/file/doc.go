// Package file publishes rows as files in a folder: JSON Lines, CSV or Parquet.
//
//	FOLDER/RUN/p00003-r0000000000001200.jsonl
//	FOLDER/RUN/date=2026-01-05/hour=14/p00003-r0000000000001200.jsonl
//
// holds rows of partition 3 from row 1200 on, up to where the next file of that partition begins. RUN is the run's id, with what a
// file name should not have as %XX. There is one file for each partition and publication; with Config.Every, the second form, one for each stretch of
// event time (in UTC) that the rows of a publication pass through, in folders that readers of Hive's layout know.
//
// # What it promises
//
//   - A file appears whole or not at all, and never changes: it is written and synced under a temporary name, and then linked to its own.
//   - The files of a partition appear in the order of their rows, each when the one before is there to stay. So what stands after a kill between two files of one
//     publication is its beginning, and the next owner goes on there.
//   - No row is there twice. A name says where a file begins, and a link is made only if nobody has that name: who publishes from row 1200 on is the one
//     who continues what stands, or is told that another has. So an owner that was taken over can do no harm, whenever he wakes: he
//     publishes what nobody has yet, which his heir then leaves out, or nothing. No token is needed, and none is kept. That is why the layout of a run's
//     files never changes: the file .layout.jsonl says which it is, where it is not the first one above.
//   - The numbers are those of one sequence (sinks.Target.Sequence): the file .sequence-jsonl says which, and another is refused before anything is changed.
//   - What stands is read back from the last file of each partition, which therefore has to stay, as it is, as long as the run lives. Others may be taken
//     away, and are not missed: the end of a file is not in its name, which has to be one and the same for all who would continue there. A reader finds a hole
//     by the row numbers.
//
// The folder has to be on a file system that has hard links, as every local one of Unix and NTFS.
//
// Temporary names begin with a dot. Those that a killed process left are removed when the run's folder is opened the next time for the same format: several
// formats may share a folder.
package file
