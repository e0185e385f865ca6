// Package drill runs the drill of two owners with real processes: stream daemons of this very program over a topic, which are stopped, killed
// and woken at named moments while an independent reader watches the store. Every promise is one check with its evidence.
//
// Parts run side by side, each with runs of its own:
//
//	owners    an intruder, an owner that stalls and wakes, and the owner after it
//	kill      an owner that is killed, and a stand-by that respects its fresh lease
//	zombie    an owner that is stopped where it believes in its lease: the store refuses it
//	deaf      an owner that is stopped when its epoch stands and it does not know
//	effect    an owner that is stopped inside the transaction of its commit
//	shot      an owner that is killed there
//	pointsN   SIGKILL at every failpoint of the engine and at the steps of the store, one process each
//	handover  SIGTERM to the owner: the stand-by does not wait for the lease to run out
//	twins     two processes with the same owner id by mistake
//	reborn    an owner id that comes back in another process
//	clock     a process whose clock is two minutes ahead
//	keeper    SIGKILL around every write of a checkpoint
//	restore   an older checkpoint, restored as a new run and fed with the rest of the topic
//
// The long drill (Config.Records) is one run with an owner and a stand-by and as many faults as are asked for, compared with the same run left
// alone.
package drill
