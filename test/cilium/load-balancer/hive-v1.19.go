//go:build cilium1_19

package main

import (
	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"

	daemonk8s "github.com/cilium/cilium/daemon/k8s"
	cmtypes "github.com/cilium/cilium/pkg/clustermesh/types"
	"github.com/cilium/cilium/pkg/datapath/tables"
	envoyCfg "github.com/cilium/cilium/pkg/envoy/config"
	k8sclient "github.com/cilium/cilium/pkg/k8s/client"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client/testutils"
	"github.com/cilium/cilium/pkg/kpr"
	"github.com/cilium/cilium/pkg/lbipamconfig"
	"github.com/cilium/cilium/pkg/loadbalancer"
	lbcell "github.com/cilium/cilium/pkg/loadbalancer/cell"
	"github.com/cilium/cilium/pkg/maglev"
	"github.com/cilium/cilium/pkg/metrics"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/nodeipamconfig"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/source"
)

// loadBalancer is Hive of pkg/loadbalancer/repl/main.go.
func loadBalancer(fake bool) cell.Cell {
	client := k8sclient.Cell
	if fake {
		client = k8sClient.FakeClientCell()
	}
	return cell.Group(
		client, daemonk8s.ResourcesCell, daemonk8s.TablesCell, maglev.Cell,
		node.LocalNodeStoreTestCell, metrics.Cell, lbipamconfig.Cell, nodeipamconfig.Cell,
		cell.Config(loadbalancer.TestConfig{}), cell.Config(envoyCfg.SecretSyncConfig{}),
		cell.Provide(
			func() cmtypes.ClusterInfo { return cmtypes.ClusterInfo{} },
			source.NewSources,
			tables.NewNodeAddressTable,
			statedb.RWTable[tables.NodeAddress].ToTable,
			func() *option.DaemonConfig { return &option.DaemonConfig{EnableIPv4: true, EnableIPv6: true} },
			func() kpr.KPRConfig { return kpr.KPRConfig{KubeProxyReplacement: true} },
			func(cfg loadbalancer.TestConfig) *loadbalancer.TestConfig { return &cfg },
		),
		lbcell.Cell,
	)
}
