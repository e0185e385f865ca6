package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// canonLimit is the largest document that canon takes.
const canonLimit = 256 << 20

func (a *app) canonCommand() *cobra.Command {
	var hash bool
	cmd := &cobra.Command{
		Use:     "canon",
		Short:   "Print the canonical bytes (FINAZ_JSON_V1) of the JSON document on stdin, or their hash",
		Example: "  echo '[null, null, 2.0, 3.0, 4.0, 5.0]' | weir canon --hash",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			src, err := io.ReadAll(io.LimitReader(a.stdin, canonLimit+1))
			if err != nil {
				return codes.New(codes.DocumentInvalid, "standard input: %w", err)
			}
			if len(src) > canonLimit {
				return codes.New(codes.DocumentInvalid, "standard input is larger than %d bytes", canonLimit)
			}
			canonical, err := record.Canonical(src)
			if err != nil {
				return codes.New(codes.DocumentInvalid, "standard input: %w", err)
			}
			switch {
			case a.json:
				return a.document(map[string]any{"hash": record.Hash(canonical), "bytes": len(canonical), "canonical": string(canonical)})
			case hash:
				a.printf("%s\n", record.Hash(canonical))
			default:
				// No line break is added: these are the bytes that a digest is taken of.
				_, err = a.stdout.Write(canonical)
			}
			if err != nil {
				return codes.New(codes.OutputUnwritable, "standard output: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&hash, "hash", false, "print sha256:HEX of the canonical bytes instead")
	return cmd
}
