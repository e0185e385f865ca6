package deploytest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The part of Kubernetes' objects that ours use. A field that is not here is an error: add it with its name from the API's reference.
type (
	meta struct {
		Name, Namespace string
		Labels          map[string]string
	}
	labels struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	workload struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			Replicas                int
			BackoffLimit            int `yaml:"backoffLimit"`
			ActiveDeadlineSeconds   int `yaml:"activeDeadlineSeconds"`
			TTLSecondsAfterFinished int `yaml:"ttlSecondsAfterFinished"`
			Selector                labels
			Strategy                struct {
				Type          string
				RollingUpdate struct {
					MaxUnavailable int `yaml:"maxUnavailable"`
					MaxSurge       int `yaml:"maxSurge"`
				} `yaml:"rollingUpdate"`
			}
			Template struct {
				Metadata meta
				Spec     pod
			}
		}
	}
	pod struct {
		ServiceAccountName            string `yaml:"serviceAccountName"`
		AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
		RestartPolicy                 string `yaml:"restartPolicy"`
		TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot bool                  `yaml:"runAsNonRoot"`
			RunAsUser    int                   `yaml:"runAsUser"`
			RunAsGroup   int                   `yaml:"runAsGroup"`
			FSGroup      int                   `yaml:"fsGroup"`
			Seccomp      struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		TopologySpreadConstraints []struct {
			MaxSkew           int    `yaml:"maxSkew"`
			TopologyKey       string `yaml:"topologyKey"`
			WhenUnsatisfiable string `yaml:"whenUnsatisfiable"`
			LabelSelector     labels `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container
		Volumes    []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
			Secret    struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
			}
		}
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef struct {
					FieldPath string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
		Ports []struct {
			Name, Protocol string
			ContainerPort  int `yaml:"containerPort"`
		}
		Resources       struct{ Requests, Limits map[string]string }
		LivenessProbe   probe `yaml:"livenessProbe"`
		ReadinessProbe  probe `yaml:"readinessProbe"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	probe struct {
		HTTPGet *struct {
			Path, Port, Scheme string
			HTTPHeaders        []struct{ Name, Value string } `yaml:"httpHeaders"`
		} `yaml:"httpGet"`
		Exec                struct{ Command []string }
		InitialDelaySeconds int `yaml:"initialDelaySeconds"`
		PeriodSeconds       int `yaml:"periodSeconds"`
		TimeoutSeconds      int `yaml:"timeoutSeconds"`
		FailureThreshold    int `yaml:"failureThreshold"`
	}
	budget struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			MinAvailable   int    `yaml:"minAvailable"`
			MaxUnavailable int    `yaml:"maxUnavailable"`
			Unhealthy      string `yaml:"unhealthyPodEvictionPolicy"`
			Selector       labels
		}
	}
	headless struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			ClusterIP                string `yaml:"clusterIP"`
			PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
			Selector                 map[string]string
			Ports                    []struct {
				Name, Protocol string
				Port           int
				TargetPort     string `yaml:"targetPort"`
			}
		}
	}
	policyPort struct {
		Protocol string
		Port     int
	}
	policyPeer struct {
		NamespaceSelector labels `yaml:"namespaceSelector"`
	}
	policy struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			PodSelector labels   `yaml:"podSelector"`
			PolicyTypes []string `yaml:"policyTypes"`
			Ingress     []struct {
				From  []policyPeer
				Ports []policyPort
			}
			Egress []struct {
				To    []policyPeer
				Ports []policyPort
			}
		}
	}
	account struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Automount  *bool `yaml:"automountServiceAccountToken"`
	}
	plain struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Data       map[string]string
	}
)

// manifests is all of a folder, by kind and name.
func manifests(t *testing.T, folder string) map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no manifests (%v)", folder, err)
	}
	out := map[string]any{}
	for _, f := range files {
		rel, err := filepath.Rel(root, f)
		if err != nil {
			t.Fatal(err)
		}
		strictly(t, rel, func(kind string) any {
			var v any
			switch kind {
			case "Deployment", "Job":
				v = &workload{}
			case "PodDisruptionBudget":
				v = &budget{}
			case "Service":
				v = &headless{}
			case "NetworkPolicy":
				v = &policy{}
			case "ServiceAccount":
				v = &account{}
			case "Namespace", "ConfigMap":
				v = &plain{}
			default:
				t.Fatalf("%s: %q is not one of the kinds that are known here", rel, kind)
			}
			key := kind
			if out[key] != nil {
				t.Fatalf("%s: a second %s", folder, kind)
			}
			out[key] = v
			return v
		})
	}
	return out
}

func TestKubernetesCommon(t *testing.T) {
	t.Parallel()
	all := manifests(t, "namespace")
	if ns := all["Namespace"].(*plain); ns.Metadata.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Error("the namespace takes pods with rights")
	}
	if a := all["ServiceAccount"].(*account); a.Automount == nil || *a.Automount {
		t.Error("the account gets a token")
	}
	p := all["NetworkPolicy"].(*policy).Spec
	if !slices.Equal(p.PolicyTypes, []string{"Ingress", "Egress"}) || len(p.Ingress) != 1 || len(p.Ingress[0].From) != 1 || len(p.Ingress[0].Ports) != 1 || p.Ingress[0].Ports[0].Port != 8787 {
		t.Errorf("more than Prometheus comes in: %+v", p)
	}
	for _, e := range p.Egress {
		if len(e.Ports) == 0 {
			t.Errorf("everything goes out: %+v", e)
		}
	}
	job := all["Job"].(*workload)
	ofPod(t, "migrate", job.Spec.Template.Spec)
	if c := job.Spec.Template.Spec.Containers[0]; c.Args[0] != "migrate" || job.Spec.Template.Spec.RestartPolicy != "Never" || job.Spec.ActiveDeadlineSeconds == 0 {
		t.Errorf("%+v", job.Spec)
	}
	if all["ConfigMap"].(*plain).Data["flow.yaml"] != read(t, "deploy/compose/flow.yaml") {
		t.Error("the flows of compose and Kubernetes have drifted apart")
	}
}

func TestKubernetesRuns(t *testing.T) {
	t.Parallel()
	service := manifests(t, "namespace")["Service"].(*headless).Spec
	for _, folder := range []string{"standby", "partitions"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			all := manifests(t, folder)
			d, pdb := all["Deployment"].(*workload), all["PodDisruptionBudget"].(*budget)
			on := d.Spec.Template.Metadata.Labels
			for who, wanted := range map[string]map[string]string{"its own selector": d.Spec.Selector.MatchLabels, "the budget": pdb.Spec.Selector.MatchLabels, "the service": service.Selector,
				"the spread": d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels} {
				if fmt.Sprint(wanted) != fmt.Sprint(on) {
					t.Errorf("%s looks for %v, and the pods have %v", who, wanted, on)
				}
			}
			if b := pdb.Spec; b.MinAvailable+b.MaxUnavailable != 1 || d.Spec.Replicas < 2 {
				t.Errorf("a node that is drained takes everything away: %+v of %d", b, d.Spec.Replicas)
			}
			pod := d.Spec.Template.Spec
			ofPod(t, folder, pod)
			ofRun(t, folder, pod)
			c := pod.Containers[0]
			if c.Ports[0].Name != service.Ports[0].TargetPort || c.Ports[0].ContainerPort != 8787 {
				t.Errorf("the service looks for %s, and the container has %+v", service.Ports[0].TargetPort, c.Ports)
			}
			standby := slices.Contains(c.Args, "--standby")
			if apart := flag(c.Args, "scope") == "partition"; standby == apart || standby != (folder == "standby") {
				t.Errorf("%v", c.Args)
			}
		})
	}
}

// ofPod is what the level "restricted" of a cluster asks, and more.
func ofPod(t *testing.T, place string, p pod) {
	t.Helper()
	s := p.SecurityContext
	if !s.RunAsNonRoot || s.RunAsUser == 0 || s.RunAsUser != s.RunAsGroup || s.FSGroup != s.RunAsGroup || s.Seccomp.Type != "RuntimeDefault" {
		t.Errorf("%s: %+v", place, s)
	}
	if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken || p.ServiceAccountName != "weir" {
		t.Errorf("%s: the pod gets a token of the cluster", place)
	}
	if len(p.Containers) != 1 {
		t.Fatalf("%s: %d containers", place, len(p.Containers))
	}
	c := p.Containers[0]
	if x := c.SecurityContext; x.AllowPrivilegeEscalation == nil || *x.AllowPrivilegeEscalation || !x.ReadOnlyRootFilesystem || !slices.Equal(x.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("%s: %+v", place, x)
	}
	if c.Resources.Limits["memory"] == "" || c.Resources.Requests["memory"] == "" || c.Resources.Requests["cpu"] == "" {
		t.Errorf("%s: %+v", place, c.Resources)
	}
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("%s: %s can be written", place, m.MountPath)
		}
		mounted[m.MountPath] = m.Name
	}
	volumes := map[string]bool{}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
		// Root's, for the group alone: what weir takes for a secret.
		if v.Secret.SecretName != "" && v.Secret.DefaultMode != 0o440 {
			t.Errorf("%s: the secret %s has the mode %04o", place, v.Secret.SecretName, v.Secret.DefaultMode)
		}
		if place != "migrate" && v.Secret.SecretName == "weir-admin" {
			t.Errorf("%s reads the login that changes the schema", place)
		}
	}
	args := append(slices.Clone(c.Args), c.ReadinessProbe.Exec.Command...)
	for _, a := range args {
		i := strings.Index(a, "/etc/weir/")
		if i < 0 {
			continue
		}
		if folder := filepath.Dir(a[i:]); !volumes[mounted[folder]] {
			t.Errorf("%s: %s is in no volume", place, a)
		}
	}
	filled := strings.ReplaceAll(strings.Join(c.Args, "\n"), "$(POD_IP)", "10.0.0.1")
	accepts(t, "kubernetes: "+place, strings.Split(filled, "\n"))
	secretless(t, "kubernetes: "+place, c.Args)
}

// ofRun is what we ask of a pod that runs a stream.
func ofRun(t *testing.T, place string, p pod) {
	t.Helper()
	c := p.Containers[0]
	if grace := time.Duration(p.TerminationGracePeriodSeconds) * time.Second; grace < leastGrace {
		t.Errorf("%s: a pod is given %s to stop, and needs %s", place, grace, leastGrace)
	}
	live := c.LivenessProbe
	if live.HTTPGet == nil || live.HTTPGet.Path != "/livez" || live.HTTPGet.Scheme != "HTTPS" || live.HTTPGet.Port != c.Ports[0].Name {
		t.Errorf("%s: %+v", place, live)
	} else if h := live.HTTPGet.HTTPHeaders; len(h) != 1 || h[0].Name != "Host" || h[0].Value != "localhost" {
		t.Errorf("%s: the probe asks for a host that weir does not answer to: %v", place, h)
	}
	if patience := live.PeriodSeconds * live.FailureThreshold; patience < 60 {
		t.Errorf("%s: a busy process is killed after %d s", place, patience)
	}
	ready := c.ReadinessProbe.Exec.Command
	if len(ready) < 2 || ready[0] != "/weir" {
		t.Fatalf("%s: %v", place, ready)
	}
	secretless(t, place+": probe", ready)
	// The authority is a file that is not here; asked without it, nobody listens.
	accepts(t, place+": probe", ready[1:])
	if !strings.HasSuffix(flag(c.Args, "listen"), ":8787") || flag(c.Args, "tokens") == "" || flag(c.Args, "listen-cert") == "" || flag(c.Args, "host") != "$(POD_IP)" {
		t.Errorf("%s: %v", place, c.Args)
	}
	if !slices.Contains(c.Args, "--tls") || flag(c.Args, "checkpoints") != "store" || flag(c.Args, "artifacts") != "" {
		t.Errorf("%s: a pod speaks TLS to brokers, and keeps nothing: %v", place, c.Args)
	}
	for _, e := range c.Env {
		if e.Name == "POD_IP" && e.ValueFrom.FieldRef.FieldPath == "status.podIP" {
			return
		}
	}
	t.Errorf("%s: POD_IP is not set", place)
}

// A misspelled field, or one that is not an object's, is an error and not a setting that is left out in silence.
func TestMisspelledFieldsAreFound(t *testing.T) {
	t.Parallel()
	text := read(t, "deploy/kubernetes/standby/deployment.yaml")
	for _, field := range []string{"readOnlyRootFilesystem", "runAsNonRoot", "terminationGracePeriodSeconds", "readinessProbe", "topologyKey", "scheme"} {
		bad := strings.Replace(text, field+":", strings.ToUpper(field[:1])+field[1:]+":", 1)
		d := yaml.NewDecoder(strings.NewReader(bad))
		d.KnownFields(true)
		if err := d.Decode(&workload{}); bad == text || err == nil {
			t.Errorf("nothing is said of a misspelled %s", field)
		}
	}
}
