// Runs Cilium's load balancing control plane and writes real BPF maps, without the rest of the
// agent. It follows pkg/loadbalancer/repl/main.go of Cilium, which wants a terminal and has neither
// labels nor addresses of the node. hive.go, one file for each minor version, has the parts that
// differ between versions.
//
// Each line of standard input is a command of a script: those of Cilium, such as hive/start,
// db/show and lb/maps-dump, and fail-writes. A line "=== done" or "=== failed: …" ends its output.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/script"
	"github.com/cilium/statedb"
	"github.com/spf13/pflag"

	"github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/hive"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client/testutils"
	"github.com/cilium/cilium/pkg/loadbalancer"
	lbmaps "github.com/cilium/cilium/pkg/loadbalancer/maps"
	"github.com/cilium/cilium/pkg/loadbalancer/writer"
	"github.com/cilium/cilium/pkg/node"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
)

// faultyMaps fails writes with a probability of failing/1000, as FaultyLBMaps of Cilium does, which
// a process of root does not use.
type faultyMaps struct{ lbmaps.LBMaps }

var failing atomic.Int64

func failed() error {
	if rand.Int64N(1000) < failing.Load() {
		return errors.New("write failed on purpose")
	}
	return nil
}

func (m faultyMaps) UpdateService(key lbmaps.ServiceKey, value lbmaps.ServiceValue) error {
	if err := failed(); err != nil {
		return err
	}
	return m.LBMaps.UpdateService(key, value)
}

func (m faultyMaps) DeleteService(key lbmaps.ServiceKey) error {
	if err := failed(); err != nil {
		return err
	}
	return m.LBMaps.DeleteService(key)
}

func (m faultyMaps) UpdateBackend(key lbmaps.BackendKey, value lbmaps.BackendValue) error {
	if err := failed(); err != nil {
		return err
	}
	return m.LBMaps.UpdateBackend(key, value)
}

func (m faultyMaps) DeleteBackend(key lbmaps.BackendKey) error {
	if err := failed(); err != nil {
		return err
	}
	return m.LBMaps.DeleteBackend(key)
}

var (
	nodeName   = pflag.String("node-name", "node-a", "name of the Node")
	nodeLabels = pflag.StringToString("node-labels", nil, "labels of the Node")
	addresses  = pflag.StringSlice("node-addresses", nil, "addresses with node ports")
	others     = pflag.StringSlice("other-addresses", nil, "addresses without node ports")
	workDir    = pflag.String("work-dir", "/tmp", "folder of the files that commands name")
	isFake     = pflag.Bool("fake-client", false, "take objects from k8s/add, not an API server")
)

var client *k8sClient.FakeClientset

// describeNode writes what an agent learns of its node before it starts.
func describeNode(store *node.LocalNodeStore, db *statedb.DB, table statedb.RWTable[tables.NodeAddress]) {
	store.Update(func(n *node.LocalNode) { n.Labels = *nodeLabels })
	txn := db.WriteTxn(table)
	defer txn.Commit()
	for at, text := range append(append([]string{}, *addresses...), *others...) {
		table.Insert(txn, tables.NodeAddress{
			Addr: netip.MustParseAddr(text), NodePort: at < len(*addresses), Primary: true,
			DeviceName: fmt.Sprintf("eth%d", at),
		})
	}
}

var failWrites = script.Command(
	script.CmdUsage{Summary: "fail writes of maps", Args: "PERMILLE"},
	func(s *script.State, args ...string) (script.WaitFunc, error) {
		permille, err := strconv.ParseInt(args[0], 10, 64)
		failing.Store(permille)
		return nil, err
	})

// scenarioCommands are those of pkg/loadbalancer/tests/script_test.go that change what is written.
func scenarioCommands(store *node.LocalNodeStore, w *writer.Writer) map[string]script.Cmd {
	labels := func(s *script.State, args ...string) (script.WaitFunc, error) {
		found := map[string]string{}
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			found[key] = value
		}
		store.Update(func(n *node.LocalNode) { n.Labels = found })
		return nil, nil
	}
	checked := func(s *script.State, args ...string) (script.WaitFunc, error) {
		w.SetIsServiceHealthCheckedFunc(func(svc *loadbalancer.Service) bool {
			return svc.Annotations[args[0]] != ""
		})
		return nil, nil
	}
	health := func(s *script.State, args ...string) (script.WaitFunc, error) {
		var address loadbalancer.L3n4Addr
		if err := address.ParseFromString(args[1]); err != nil {
			return nil, err
		}
		namespace, name, _ := strings.Cut(args[0], "/")
		txn := w.WriteTxn()
		defer txn.Commit()
		service := loadbalancer.NewServiceName(namespace, name)
		_, err := w.UpdateBackendHealth(txn, service, address, args[2] == "true")
		return nil, err
	}
	return map[string]script.Cmd{
		"fail-writes":                       failWrites,
		"test/set-node-labels":              script.Command(script.CmdUsage{}, labels),
		"test/set-is-service-healthchecked": script.Command(script.CmdUsage{}, checked),
		"test/update-backend-health":        script.Command(script.CmdUsage{}, health),
	}
}

func main() {
	fake := false
	for _, arg := range os.Args {
		fake = fake || arg == "--fake-client"
	}
	var more map[string]script.Cmd
	parts := []cell.Cell{
		cell.Invoke(describeNode),
		cell.Invoke(func(s *node.LocalNodeStore, w *writer.Writer) { more = scenarioCommands(s, w) }),
	}
	if fake {
		parts = append(parts, cell.Invoke(func(c *k8sClient.FakeClientset) { client = c }))
	}
	app := cell.Decorate(func(m lbmaps.LBMaps) lbmaps.LBMaps { return faultyMaps{m} }, loadBalancer(fake))
	h := hive.New(append([]cell.Cell{app}, parts...)...)
	h.RegisterFlags(pflag.CommandLine)
	pflag.Parse()
	nodeTypes.SetName(*nodeName)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cmds, err := h.ScriptCommands(log)
	if err != nil {
		panic(err)
	}
	if fake {
		maps.Copy(cmds, k8sClient.FakeClientCommands(client))
	}
	maps.Copy(cmds, script.DefaultCmds())
	maps.Copy(cmds, more)
	run(script.Engine{Cmds: cmds})
}

func run(engine script.Engine) {
	state, err := script.NewState(context.Background(), *workDir, os.Environ())
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		end := "done"
		if err := engine.ExecuteLine(state, lines.Text(), os.Stdout); err != nil {
			end = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println("\n=== " + end)
	}
}
