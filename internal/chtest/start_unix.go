//go:build unix

package chtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/chclient"
)

// The programs, and where Debian puts what only administrators have on PATH.
const program = "clickhouse-server"

var packages = []string{"install", "-y", "--no-install-recommends", "clickhouse-server", "clickhouse-client"}

// start starts the server. A port that was free may be another's by the time the server takes it; then others are tried.
func (s *server) start() error {
	path, err := find()
	if err != nil {
		return err
	}
	for range 3 {
		if err = s.launch(path); err == nil {
			return nil
		}
	}
	return err
}

// find finds the server's program. Where there is none it installs the package, if it may; it says what to do where it may not.
func find() (string, error) {
	if path := look(program); path != "" {
		return path, nil
	}
	const missing = "clickhouse-server is neither on PATH nor in /usr/sbin; install the packages clickhouse-server and clickhouse-client"
	apt := look("apt-get")
	switch {
	case os.Getenv("CI") == "":
		return "", errNone{missing + " (with CI set, root and apt-get, they would have been installed)"}
	case os.Geteuid() != 0:
		return "", errNone{missing + " (they were not installed: this is not root)"}
	case apt == "":
		return "", errNone{missing + " (they were not installed: there is no apt-get)"}
	}
	if install(apt, packages) != nil {
		// Package lists may be missing, as in images of containers.
		if err := errors.Join(install(apt, []string{"update"}), install(apt, packages)); err != nil {
			return "", fmt.Errorf("%s; installing them failed: %w", missing, err)
		}
	}
	if path := look(program); path != "" {
		return path, nil
	}
	return "", errNone{missing + " (they were installed, and are still not there)"}
}

func look(name string) string {
	if path, err := osexec.LookPath(name); err == nil {
		return path
	}
	path, _ := osexec.LookPath("/usr/sbin/" + name) // "" when it is not there
	return path
}

// install runs apt-get. Other test binaries may be at it too, so it waits for the package manager's lock.
func install(apt string, args []string) error {
	cmd := osexec.Command(apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out[max(0, len(out)-2000):])))
	}
	return nil
}

// launch makes a server's folder and starts the server.
func (s *server) launch(path string) error {
	dir, err := os.MkdirTemp("", "weir-ch-")
	if err != nil {
		return err
	}
	ports, err := freePorts(2)
	if err == nil {
		err = errors.Join(certificates(dir), configure(dir, ports[0], ports[1]))
	}
	if err == nil {
		s.path, s.dir, s.port, s.secure = path, dir, ports[0], ports[1]
		err = s.run()
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.stop = func() {
		s.kill() // nothing of it is kept
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "chtest:", err)
		}
	}
	return nil
}

// run starts the server's process and its watchdog, and waits until it answers.
func (s *server) run() error {
	cmd := osexec.Command(s.path, "--config-file="+filepath.Join(s.dir, "config.xml"))
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TZ=UTC"}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	unwatch, err := watch(cmd.Process.Pid, s.dir)
	s.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-ended
		unwatch()
	})
	if err == nil {
		err = s.answers(ended)
	}
	if err != nil {
		s.kill()
		text, _ := os.ReadFile(filepath.Join(s.dir, "errors"))
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// Ports are below those that systems give to outgoing connections: one of those must not take the port of a server that is killed and started again.
const firstPort, ports = 10_000, 8_000

// freePorts finds ports that nobody uses. Another process may take one before the server does; the server then ends.
func freePorts(n int) (found []int, err error) {
	for tries := 0; len(found) < n; tries++ {
		l, err := net.Listen("tcp", address(firstPort+rand.IntN(ports)))
		switch {
		case err == nil:
			defer l.Close()
			found = append(found, l.Addr().(*net.TCPAddr).Port)
		case tries > 100:
			return nil, err
		}
	}
	return found, nil
}

// answers waits until the server takes connections. How long a busy machine needs for that is not known: the time-out is for a server that hangs.
func (s *server) answers(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		conn, err := chclient.Connect(ctx, chclient.Config{Address: address(s.port)})
		if err == nil {
			ours := false
			err = conn.Query(ctx, "SELECT data_path FROM system.databases WHERE name = 'default'", func(row []any) error {
				at, _ := row[0].(string)
				ours = strings.HasPrefix(at, s.dir+"/")
				return nil
			})
			_ = conn.Close() // it has answered
			if err == nil && ours {
				return nil
			}
			err = errors.Join(err, errors.New("another server answers there"))
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

// watch starts a shell that ends the server and removes its folder when this process ends without doing so: its standard input is a pipe whose other end
// only this process has.
func watch(pid int, dir string) (unwatch func(), err error) {
	dog := osexec.Command("/bin/sh", "-c", `trap "" INT TERM HUP; if read -r word && [ "$word" = done ]; then exit 0; fi; kill -KILL "$1"; sleep 1; rm -rf "$2"`, "chtest-watchdog", strconv.Itoa(pid), dir)
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
