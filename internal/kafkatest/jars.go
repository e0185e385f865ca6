package kafkatest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// pom names Kafka and its version.
//
//go:embed pom.xml
var pom []byte

// Version of Kafka is part of the cache folder's name; it is the one in pom.xml (a test compares them).
const Version = "4.1.1"

// errNone means that there is no broker to be had here; tests are skipped with its text.
type errNone struct{ reason string }

func (e errNone) Error() string { return e.reason }

// jars is the folder of Kafka's jars. They are fetched into a folder of their own that is renamed when it is whole, so that several test binaries,
// or one that was killed, do not meet half of it.
func jars() (string, error) {
	if dir := os.Getenv("WEIR_TEST_KAFKA_LIB"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "weir-test", "kafka-"+Version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	mvn, err := program("mvn", "maven")
	if err != nil {
		return "", err
	}
	if mvn == "" {
		return "", errNone{"neither Kafka's jars (WEIR_TEST_KAFKA_LIB) nor Maven (mvn) to fetch them"}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := os.WriteFile(filepath.Join(scratch, "pom.xml"), pom, 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(scratch, "lib"))
	cmd.Dir = scratch
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn dependency:copy-dependencies: %w\n%s", err, out[max(0, len(out)-2000):])
	}
	if err := os.Rename(filepath.Join(scratch, "lib"), dir); err != nil {
		// Another test binary was faster.
		if _, there := os.Stat(dir); there != nil {
			return "", errors.Join(err, there)
		}
	}
	return dir, nil
}

func java() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if path, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return path, nil
		}
	}
	path, err := program("java", "default-jre-headless")
	if err == nil && path == "" {
		return "", errNone{"no Java to run it (java on PATH, or JAVA_HOME)"}
	}
	return path, err
}

// program finds a program on PATH, or "". As a last resort CI, as root, installs Debian's package that has it.
func program(name, debian string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getenv("CI") == "" || os.Geteuid() != 0 {
		return "", nil
	}
	cmd := exec.Command(apt, "install", "-y", "--no-install-recommends", debian)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get install %s: %w\n%s", debian, err, out[max(0, len(out)-2000):])
	}
	return exec.LookPath(name)
}
