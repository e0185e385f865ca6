//go:build unix

package kafkatest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Credentials that a Secure broker knows: the user, and passwords by mechanism.
const (
	User            = "weir"
	PlainPassword   = "canary-plain-81c0"
	ScramPassword   = "canary-scram-77d4"
	clusterID       = "MkU3OEVBNTcwNTJENDM2Qk"
	startTimeout    = 5 * time.Minute // it takes seconds, and more than a minute on a machine that is busy
	shutdownTimeout = 15 * time.Second
)

// Config of a broker.
type Config struct {
	// Secure adds listeners for TLS alone and for SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) over TLS.
	Secure bool
	// Settings are added to the broker's configuration.
	Settings map[string]string
}

// Broker is a running broker.
type Broker struct {
	cfg   Config
	dir   string
	ports map[string]int
	// CA is the certificate, in PEM, that clients of the secure listeners have to trust.
	CA      []byte
	java    string
	class   string
	cmd     *exec.Cmd
	ended   chan struct{}
	unwatch func()
}

// The listeners.
const (
	plaintext  = "PLAINTEXT"
	controller = "CONTROLLER"
	tlsOnly    = "SSL"
	saslTLS    = "SASL_SSL"
)

// Addr is the listener without encryption.
func (b *Broker) Addr() string { return b.at(plaintext) }

// TLSAddr is the listener with TLS; it needs Config.Secure.
func (b *Broker) TLSAddr() string { return b.at(tlsOnly) }

// SASLAddr is the listener with TLS and a login; it needs Config.Secure.
func (b *Broker) SASLAddr() string { return b.at(saslTLS) }

func (b *Broker) at(listener string) string { return fmt.Sprintf("127.0.0.1:%d", b.ports[listener]) }

var shared struct {
	once   sync.Once
	broker *Broker
	err    error
}

// Run runs the tests of a binary and ends the shared broker afterwards. It returns the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	Close()
	return code
}

// Close ends the shared broker, for a TestMain that has more to do than Run.
func Close() {
	if shared.broker != nil {
		shared.broker.stop()
	}
}

// Shared is the broker of this test binary, secure listeners included; the first caller starts it. TestMain has to use Run or Close.
func Shared(t testing.TB) *Broker {
	t.Helper()
	shared.once.Do(func() { shared.broker, shared.err = start(Config{Secure: true}) })
	return given(t, shared.broker, shared.err)
}

// Start starts a broker of the test's own, which ends with it.
func Start(t testing.TB, cfg Config) *Broker {
	t.Helper()
	b, err := start(cfg)
	b = given(t, b, err)
	t.Cleanup(b.stop)
	return b
}

func given(t testing.TB, b *Broker, err error) *Broker {
	t.Helper()
	var none errNone
	switch {
	case errors.As(err, &none) && os.Getenv("CI") == "":
		t.Skipf("Apache Kafka: %s", none.reason)
	case err != nil:
		t.Fatalf("kafkatest: %v", err)
	}
	return b
}

// start starts a broker, with other ports when one of those that it was given was taken meanwhile.
func start(cfg Config) (b *Broker, err error) {
	for range 3 {
		if b, err = begin(cfg); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return b, err
		}
	}
	return b, err
}

func begin(cfg Config) (*Broker, error) {
	b := &Broker{cfg: cfg, ports: map[string]int{}}
	var err error
	if b.java, err = java(); err != nil {
		return nil, err
	}
	lib, err := jars()
	if err != nil {
		return nil, err
	}
	b.class = filepath.Join(lib, "*")
	if b.dir, err = os.MkdirTemp("", "weir-kafka-"); err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	if err := b.launch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return b, nil
}

// prepare chooses ports, writes the configuration and formats the data folder.
func (b *Broker) prepare() error {
	listeners := []string{plaintext, controller}
	if b.cfg.Secure {
		listeners = append(listeners, tlsOnly, saslTLS)
		var err error
		if b.CA, err = certificates(b.dir); err != nil {
			return err
		}
	}
	for _, name := range listeners {
		port, err := b.freePort()
		if err != nil {
			return err
		}
		b.ports[name] = port
	}
	if err := os.WriteFile(b.config(), []byte(b.properties(listeners)), 0o600); err != nil {
		return err
	}
	args := []string{"-Xmx128m", "-cp", b.class, "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", b.config()}
	if b.cfg.Secure {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, User, ScramPassword))
		}
	}
	if out, err := exec.Command(b.java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kafka.tools.StorageTool format: %w\n%s", err, out[max(0, len(out)-2000):])
	}
	return nil
}

func (b *Broker) config() string { return filepath.Join(b.dir, "server.properties") }

// Ports are below those that systems give to outgoing connections: one of those must not take the port of a broker that is killed and started again.
const firstPort, ports = 18_000, 14_000

// freePort finds a port that nobody uses. Another process may take it before the broker does; the broker then fails to start and says so, see start.
func (b *Broker) freePort() (port int, err error) {
	for range 100 {
		port = firstPort + rand.IntN(ports)
		if slices.Contains(slices.Collect(maps.Values(b.ports)), port) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

func (b *Broker) properties(listeners []string) string {
	var at []string
	for _, name := range listeners {
		at = append(at, fmt.Sprintf("%s://%s", name, b.at(name)))
	}
	var advertised []string
	for i, name := range listeners {
		if name != controller {
			advertised = append(advertised, at[i])
		}
	}
	all := map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@" + b.at(controller),
		"listeners": strings.Join(at, ","), "advertised.listeners": strings.Join(advertised, ","),
		"controller.listener.names": controller, "inter.broker.listener.name": plaintext,
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
		"log.dirs":                       filepath.Join(b.dir, "data"), "auto.create.topics.enable": "false",
		"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1",
		// A busy machine takes long to start a broker.
		"initial.broker.registration.timeout.ms": "300000",
		// Tests write records of long ago, which the default would delete at once.
		"log.retention.ms":                 "-1",
		"group.initial.rebalance.delay.ms": "0", "log.cleaner.dedupe.buffer.size": "4194304",
		"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "500", "log.cleaner.backoff.ms": "100", "file.delete.delay.ms": "100",
	}
	if b.cfg.Secure {
		all["ssl.keystore.type"], all["ssl.truststore.type"] = "PEM", "PEM"
		all["ssl.keystore.location"], all["ssl.truststore.location"] = filepath.Join(b.dir, "server.pem"), filepath.Join(b.dir, "ca.pem")
		all["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
		all["listener.name.sasl_ssl.plain.sasl.jaas.config"] = fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s";`, User, PlainPassword)
		for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
			all["listener.name.sasl_ssl."+mechanism+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
	for name, value := range b.cfg.Settings {
		all[name] = value
	}
	lines := make([]string, 0, len(all))
	for name, value := range all {
		lines = append(lines, name+"="+value)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n") + "\n"
}

// launch starts the broker and its watchdog, and waits until it says that it has started.
func (b *Broker) launch() error {
	said := &started{mark: []byte("Kafka Server started"), seen: make(chan struct{})}
	log, err := os.OpenFile(b.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	said.file = log
	// A pipe of our own, so that the broker's output ends with the broker.
	b.cmd = exec.Command(b.java, "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
		"-cp", b.class, "kafka.Kafka", b.config())
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.cmd.Dir = b.dir
	b.cmd.Stdout, b.cmd.Stderr = said, said
	if err := b.cmd.Start(); err != nil {
		return err
	}
	if b.unwatch, err = watch(b.cmd.Process.Pid, b.dir); err != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		return err
	}
	b.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}(b.cmd, b.ended)
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-said.seen:
		return nil
	case <-b.ended:
		b.unwatch()
		return fmt.Errorf("the broker ended while it started\n%s", b.tail())
	case <-timer.C:
		said := b.tail() // before it speaks of its end
		b.end()
		return fmt.Errorf("the broker did not start within %v\n%s", startTimeout, said)
	}
}

func (b *Broker) log() string { return filepath.Join(b.dir, "broker.log") }

// tail is what of the broker's log tells why it failed: its first errors, and the end.
func (b *Broker) tail() []byte {
	text, _ := os.ReadFile(b.log())
	var errs []byte
	for line := range bytes.Lines(text) {
		if len(errs) < 3000 && (bytes.Contains(line, []byte("ERROR")) || bytes.Contains(line, []byte("Exception"))) {
			errs = append(errs, line...)
		}
	}
	return append(append(errs, "...\n"...), text[max(0, len(text)-1500):]...)
}

// Kill ends the broker as a crash does. Restart starts it again on the same ports, with what it had on disk.
func (b *Broker) Kill() {
	_ = b.cmd.Process.Kill() // it may have ended already
	<-b.ended
	b.unwatch()
}

// Restart starts a broker that was killed.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	if err := b.launch(); err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
}

// Freeze stops the broker in the middle of whatever it does; connections stay open. Thaw lets it go on.
func (b *Broker) Freeze() error { return b.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (b *Broker) Thaw() error { return b.cmd.Process.Signal(syscall.SIGCONT) }

// end stops the process.
func (b *Broker) end() {
	_ = b.Thaw() // it may have ended already
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(shutdownTimeout)
	defer timer.Stop()
	select {
	case <-b.ended:
	case <-timer.C:
		_ = b.cmd.Process.Kill()
		<-b.ended
	}
	b.unwatch()
}

func (b *Broker) stop() {
	b.end()
	if err := os.RemoveAll(b.dir); err != nil {
		fmt.Fprintln(os.Stderr, "kafkatest:", err)
	}
}

// started copies the broker's output to its log and notices the line that says that it has started.
type started struct {
	file *os.File
	mark []byte
	seen chan struct{}
	once sync.Once
	mu   sync.Mutex
	all  []byte
	done bool
}

// Write is called from the goroutines that copy the broker's output.
func (s *started) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.all = append(s.all, p...)
		if bytes.Contains(s.all, s.mark) {
			s.done, s.all = true, nil
			s.once.Do(func() { close(s.seen) })
		}
		if _, err := s.file.Write(p); err != nil {
			return len(p), nil // the log is for people; the broker must not stand still for it
		}
	}
	return len(p), nil
}
