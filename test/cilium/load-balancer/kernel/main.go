// Asks the kernel what Cilium does: it loads a compiled program of Cilium, fills its maps with
// recorded entries, and runs it.
//
//	kernel cookie                   prints the cookie of the network namespace
//	kernel sockets OBJECT CGROUP    connects sockets in that cgroup (bpf_sock.c)
//	kernel packets OBJECT           takes packets from outside (bpf_xdp.c)
//
// It reads lines of JSON: first the maps, then questions, each of which it answers with a line: how
// many connections went to each `address:port`, and how many failed with each error.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

type entry struct {
	Key   []string `json:"key"`
	Value []string `json:"value"`
}

type state struct {
	// As bpftool prints them, by the full name of the map.
	Maps map[string][]entry `json:"maps"`
	// Addresses of the node: their identity is that of the host.
	Local         []netip.Addr `json:"local"`
	NodePortRange [2]uint16    `json:"nodePortRange"`
	// Backends: they are pods of this node, so that nothing else happens to packets.
	Backends []netip.AddrPort `json:"backends"`
	IsMaglev bool             `json:"isMaglev"`
	// Whether an annotation chooses the algorithm.
	ByService bool `json:"byService"`
}

type question struct {
	Protocol string     `json:"protocol"`
	Source   netip.Addr `json:"source"`
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port"`
	Count    int        `json:"count"`
	// With session affinity, a client stays where it is. Each connection is of another client.
	Affine bool `json:"affine"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%+v\n", err)
		os.Exit(1)
	}
}

func bytesOf(texts []string) []byte {
	bytes := make([]byte, len(texts))
	for at, text := range texts {
		value, err := strconv.ParseUint(text, 0, 8)
		check(err)
		bytes[at] = byte(value)
	}
	return bytes
}

// load returns the programs and their maps, which nothing else uses.
func load(object string, of state) *ebpf.Collection {
	spec, err := ebpf.LoadCollectionSpec(object)
	check(err)
	for name := range spec.Programs {
		if strings.HasPrefix(name, "cil_sock") && connectPrograms[name] == 0 {
			delete(spec.Programs, name)
		}
	}
	for _, one := range spec.Maps {
		one.Pinning = ebpf.PinNone
		// BPF_F_RDONLY_PROG_COND, which only the loader of Cilium knows.
		one.Flags &^= 1 << 31
	}
	addTailCalls(spec)
	algorithm := uint8(1)
	if of.IsMaglev {
		algorithm = 2
	}
	for name, value := range map[string]any{
		"nodeport_port_min":                    of.NodePortRange[0],
		"nodeport_port_max":                    of.NodePortRange[1],
		"enable_no_service_endpoints_routable": true,
		"lb_default_alg":                       algorithm,
		"lb_selection_per_service":             of.ByService,
	} {
		if variable := spec.Variables["__config_"+name]; variable != nil {
			check(variable.Set(value))
		}
	}
	collection, err := ebpf.NewCollection(spec)
	check(err)
	return collection
}

// addTailCalls gives each program its slot, as its tag says (__declare_tail in bpf/include).
func addTailCalls(spec *ebpf.CollectionSpec) {
	for name, program := range spec.Programs {
		for _, tag := range btf.FuncMetadata(&program.Instructions[0]).Tags {
			text, isTail := strings.CutPrefix(tag, "tail:cilium_calls/")
			if !isTail {
				continue
			}
			slot, err := strconv.ParseUint(text, 10, 32)
			check(err)
			calls := spec.Maps["cilium_calls"]
			calls.Contents = append(calls.Contents, ebpf.MapKV{Key: uint32(slot), Value: name})
		}
	}
}

// fill writes the recorded entries.
func fill(maps map[string]*ebpf.Map, of state) {
	for name, entries := range of.Maps {
		if maps[name] == nil {
			continue
		}
		for _, it := range entries {
			if maps[name].Type() == ebpf.HashOfMaps {
				// Sockets do not use tables, and their program is compiled for one size.
				if os.Args[1] == "packets" {
					check(maps[name].Put(bytesOf(it.Key), tableOf(of, bytesOf(it.Value))))
				}
				continue
			}
			check(maps[name].Put(bytesOf(it.Key), bytesOf(it.Value)))
		}
	}
	for _, address := range of.Local {
		fillHost(maps["cilium_ipcache_v2"], address)
	}
	for _, backend := range of.Backends {
		fillEndpoint(maps["cilium_lxc"], backend.Addr())
	}
}

// tableOf creates an inner table of Maglev.
func tableOf(of state, id []byte) *ebpf.Map {
	name := fmt.Sprintf("cilium_maglev_inner:%d", binary.LittleEndian.Uint32(id))
	places := bytesOf(of.Maps[name][0].Value)
	table, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(places)), MaxEntries: 1,
	})
	check(err)
	check(table.Put(uint32(0), places))
	return table
}

// fillHost writes the identity of an address: struct ipcache_key of bpf/lib/eps.h has the length of
// the prefix, and the family at byte 7.
func fillHost(identities *ebpf.Map, address netip.Addr) {
	if identities == nil {
		return
	}
	key, value := make([]byte, 24), make([]byte, 24)
	bits := address.BitLen()
	binary.LittleEndian.PutUint32(key, uint32(32+bits))
	key[7] = byte(1 + bits/128)
	copy(key[8:], address.AsSlice())
	// HOST_ID
	value[0] = 1
	check(identities.Put(key, value))
}

// fillEndpoint makes an address that of a pod here: struct endpoint_key of bpf/lib/eps.h.
func fillEndpoint(endpoints *ebpf.Map, address netip.Addr) {
	if endpoints == nil {
		return
	}
	key := make([]byte, 20)
	copy(key, address.AsSlice())
	key[16] = byte(1 + address.BitLen()/128)
	check(endpoints.Put(key, make([]byte, endpoints.ValueSize())))
}

func forget(one *ebpf.Map) {
	var key, value []byte
	var keys [][]byte
	for entries := one.Iterate(); entries.Next(&key, &value); {
		keys = append(keys, append([]byte{}, key...))
	}
	for _, key := range keys {
		check(one.Delete(key))
	}
}

func main() {
	if os.Args[1] == "cookie" {
		fmt.Println(cookie())
		return
	}
	lines := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	var of state
	check(lines.Decode(&of))
	collection := load(os.Args[2], of)
	fill(collection.Maps, of)
	var ask func(question) string
	if os.Args[1] == "sockets" {
		ports := map[uint16]bool{}
		for _, backend := range of.Backends {
			ports[backend.Port()] = true
		}
		ask = connector(collection.Programs, os.Args[3], ports)
	} else {
		ask = sender(collection.Programs["cil_xdp_entry"])
	}
	answers := json.NewEncoder(os.Stdout)
	for lines.More() {
		var asked question
		check(lines.Decode(&asked))
		counts := map[string]int{}
		for range asked.Count {
			if asked.Affine {
				forget(collection.Maps["cilium_lb4_affinity"])
				forget(collection.Maps["cilium_lb6_affinity"])
			}
			counts[ask(asked)]++
		}
		check(answers.Encode(counts))
	}
}
