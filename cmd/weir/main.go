// Command weir is an actor-model stream processor: batch, replay and stream give the same bits.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main without the process: it parses args, performs the command and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	written := &writeFailure{to: stdout}
	a := &app{stdin: stdin, stdout: written, stderr: stderr, written: written}
	root := a.all()
	a.json = wantsJSON(args)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		a.json = wantsJSON(args) // a flag that cannot be parsed may have been this one
		if word := misspelled(root, args); word != "" {
			err = fmt.Errorf("unknown command %q for %q", word, cmd.CommandPath()) // its flags are unknown for that alone
		}
		return usageError{plainly(err)}
	})
	return a.execute(root, args)
}

// wantsJSON says whether --json is among the arguments, before they are parsed: an error in them is told as a document too.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

// all is the root with every command.
func (a *app) all() *cobra.Command {
	root := a.root()
	root.AddCommand(
		a.demoCommand(),
		a.drillCommand(),
		a.runCommand(),
		a.statusCommand(),
		a.whyCommand(),
		a.tapCommand(),
		a.probeCommand(),
		a.batchCommand(),
		a.replayCommand(),
		a.parityCommand(),
		a.serveCommand(),
		a.migrateCommand(),
		a.runsCommand(),
		a.leaseCommand(),
		a.outboxCommand(),
		a.checkpointCommand(),
		a.journalCommand(),
		a.quarantineCommand(),
		a.handoffCommand(),
		a.shardsCommand(),
		a.rewindCommand(),
		a.recoverCommand(),
		a.idleCommand(),
		a.gapCommand(),
		a.reconcileCommand(),
		a.brokerCommand(),
		a.lintCommand(),
		a.planCommand(),
		a.schemaCommand(),
		a.graphCommand(),
		a.canonCommand(),
		a.versionCommand(),
	)
	return root
}
