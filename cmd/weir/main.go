// Command weir is an actor-model stream processor: batch, replay and stream give the same bits.
package main

import (
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main without the process: it parses args, performs the command and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.AddCommand(
		a.demoCommand(),
		a.runCommand(),
		a.batchCommand(),
		a.replayCommand(),
		a.parityCommand(),
		a.serveCommand(),
		a.migrateCommand(),
		a.runsCommand(),
		a.leaseCommand(),
		a.outboxCommand(),
		a.reconcileCommand(),
		a.brokerCommand(),
		a.lintCommand(),
		a.planCommand(),
		a.schemaCommand(),
		a.canonCommand(),
		a.versionCommand(),
	)
	return a.execute(root, args)
}
