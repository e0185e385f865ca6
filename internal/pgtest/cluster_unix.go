//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// startCluster makes a cluster in a temporary folder and starts its server.
func (s *server) startCluster() error {
	bin, err := here().binaries()
	if err != nil {
		return err
	}
	run, err := runner()
	if err != nil {
		return err
	}
	// Not under TMPDIR as it stands: the path of a socket may have 107 bytes, and the server's user must be able to get there.
	dir, err := os.MkdirTemp("/tmp", "weir-pg-")
	if err != nil {
		return err
	}
	if err := s.initialise(bin, dir, run); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return s.launch(bin, dir, run)
}

// initialise creates the cluster's files.
func (s *server) initialise(bin, dir string, run *syscall.Credential) error {
	if run != nil {
		if err := os.Chown(dir, int(run.Uid), int(run.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	prepare(initdb, dir, run)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	// Who can reach the socket is the folder's owner, or root. One login is asked for a password, so that a wrong one can be tried.
	hba := fmt.Sprintf("local all %s scram-sha-256\nlocal all all trust\n", PasswordLogin)
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(s.settings(dir))
	return errors.Join(err, conf.Close())
}

// launch starts the server and its watchdog, and waits until it answers.
func (s *server) launch(bin, dir string, run *syscall.Credential) error {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	postgres := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"))
	prepare(postgres, dir, run)
	postgres.Stdout, postgres.Stderr = log, log
	if err := postgres.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	ended := make(chan struct{})
	go func() {
		_ = postgres.Wait() // how it ended is in its log
		close(ended)
	}()
	unwatch, err := watch(postgres.Process.Pid, dir)
	s.stop = func() {
		_ = postgres.Process.Signal(syscall.SIGINT) // fast shutdown; it may have ended already
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = postgres.Process.Signal(syscall.SIGQUIT)
			<-ended
		}
		unwatch()
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
		}
	}
	if err != nil {
		s.stop()
		return err
	}
	s.super = &url.URL{Scheme: "postgres", Path: "/postgres", RawQuery: url.Values{"host": {dir}, "user": {"postgres"}}.Encode()}
	if err := s.answers(ended); err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		s.stop()
		s.stop = nil
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// answers waits until the server takes connections. How long a busy machine needs for that is not known: the time-out is for a server that hangs.
func (s *server) answers(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.super.String())
		if err == nil {
			_, err = conn.Exec(ctx, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", PasswordLogin, Password))
			return errors.Join(err, conn.Close(ctx))
		}
		select {
		case <-ended:
			return errors.New("the server ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watch starts a shell that ends the server and removes its folder when this process ends without doing so: its standard input is a pipe
// whose other end only this process has.
func watch(pid int, dir string) (unwatch func(), err error) {
	dog := exec.Command("/bin/sh", "-c", `trap "" INT TERM HUP; if read -r word && [ "$word" = done ]; then exit 0; fi; kill -QUIT "$1"; sleep 1; rm -rf "$2"`, "pgtest-watchdog", strconv.Itoa(pid), dir)
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := dog.StdinPipe()
	if err != nil {
		return func() {}, err
	}
	if err := dog.Start(); err != nil {
		return func() {}, err
	}
	return func() {
		_, _ = in.Write([]byte("done\n")) // a watchdog that is gone needs no word
		_ = in.Close()
		_ = dog.Wait()
	}, nil
}

// prepare lets a command run as the server's user, in the cluster's folder, in a process group of its own.
func prepare(cmd *exec.Cmd, dir string, run *syscall.Credential) {
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: run}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TZ=UTC"}
}

// runner is the user that may run the server: nil is this one; root needs another.
func runner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errNone{"root may not run it, and there is neither a user postgres nor nobody"}
}
