package main

import (
	"context"
	"crypto/tls"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/server"
)

type serveOptions struct {
	store, artifacts, flows, snapshots, listen, tokens, cert, key string
	hosts                                                         []string
}

func (a *app) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API: admit runs, show and cancel them",
		Long: "Listens on loopback by default. Another address needs --tokens and a certificate. The API takes names of flows and snapshots that are registered\n" +
			"in the folders given here, never code, paths or URLs. A token file has a line for each principal: its name, a space and its token.",
		Example: "  weir serve --store sqlite:weir.db --artifacts artifacts --flows flows --snapshots snapshots\n" +
			"  weir serve --store sqlite:weir.db --artifacts artifacts --flows flows --snapshots snapshots --tokens tokens --listen 127.0.0.1:9000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.store, "store", "", "store of the control plane: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH (required)")
	f.StringVar(&o.artifacts, "artifacts", "", "folder of artefacts (required)")
	f.StringVar(&o.flows, "flows", "", "folder of flows, NAME.yaml (required)")
	f.StringVar(&o.snapshots, "snapshots", "", "folder of snapshots, NAME.jsonl or NAME.csv (required)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8787", "address to listen on; port 0 takes a free one")
	f.StringVar(&o.tokens, "tokens", "", "file of principals and their bearer tokens, readable by its owner alone")
	f.StringVar(&o.cert, "tls-cert", "", "certificate, PEM")
	f.StringVar(&o.key, "tls-key", "", "its key, PEM")
	f.StringSliceVar(&o.hosts, "host", nil, "further name under which the server is reached; may be repeated")
	return cmd
}

func (o serveOptions) config() (server.Config, error) {
	cfg := server.Config{Listen: o.listen, Hosts: o.hosts}
	var err error
	if o.tokens != "" {
		if cfg.Tokens, err = server.ReadTokens(o.tokens); err != nil {
			return cfg, err
		}
	}
	if (o.cert == "") != (o.key == "") {
		return cfg, usagef("give both --tls-cert and --tls-key, or neither")
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return cfg, codes.New(codes.ConfigInvalid, "the certificate or its key cannot be used: %w", err)
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return cfg, nil
}

func (a *app) serve(ctx context.Context, o serveOptions) error {
	for _, f := range [][2]string{{"store", o.store}, {"artifacts", o.artifacts}, {"flows", o.flows}, {"snapshots", o.snapshots}} {
		if f[1] == "" {
			return usagef("--%s is missing", f[0])
		}
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	names, err := catalog.Open(o.flows, o.snapshots)
	if err != nil {
		return err
	}
	defer names.Close()
	blobs, err := dir.Open(o.artifacts)
	if err != nil {
		return err
	}
	defer blobs.Close()
	store, err := openStore(ctx, o.store)
	if err != nil {
		return err
	}
	defer store.Close()
	cfg.Store, cfg.Names, cfg.Artifacts, cfg.Logger = store, names, blobs, a.log
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	return s.Serve(ctx, func(addr string) {
		scheme := "http"
		if cfg.TLS != nil {
			scheme = "https"
		}
		if a.json {
			a.document(map[string]any{"listening": scheme + "://" + addr})
			return
		}
		a.printf("listening on %s://%s; Ctrl-C stops it\n", scheme, addr)
	})
}
