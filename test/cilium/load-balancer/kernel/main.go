// Asks the kernel where connect() goes: it loads the socket load balancing program of Cilium
// (bpf/bpf_sock.c, compiled), fills its maps with recorded entries, attaches it to a cgroup, and
// connects sockets in that cgroup and in the network namespace of this process.
//
// `sockets cookie` prints the cookie of the namespace. `sockets OBJECT CGROUP` reads lines of JSON:
// first the maps, then questions, each of which it answers with a line: how many connections went
// to each `address:port`, and how many failed with each error.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
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
	// TCP ports at which connections are accepted, whatever their address.
	Ports []uint16 `json:"ports"`
}

type question struct {
	Protocol string     `json:"protocol"`
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port"`
	Count    int        `json:"count"`
	// With session affinity, all sockets of a namespace are one client. Each of these is another.
	Affine bool `json:"affine"`
}

var programs = map[string]ebpf.AttachType{
	"cil_sock4_connect": ebpf.AttachCGroupInet4Connect,
	"cil_sock6_connect": ebpf.AttachCGroupInet6Connect,
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
		if _, isUsed := programs[name]; !isUsed {
			delete(spec.Programs, name)
		}
	}
	for _, one := range spec.Maps {
		one.Pinning = ebpf.PinNone
		// Replaced by Cilium's loader, if the kernel has it.
		one.Flags &^= 1 << 31
	}
	for name, value := range map[string]any{
		"nodeport_port_min":                    of.NodePortRange[0],
		"nodeport_port_max":                    of.NodePortRange[1],
		"enable_no_service_endpoints_routable": true,
	} {
		variable := spec.Variables["__config_"+name]
		if variable == nil {
			check(fmt.Errorf("no variable %s", name))
		}
		check(variable.Set(value))
	}
	collection, err := ebpf.NewCollection(spec)
	check(err)
	return collection
}

// fill writes the recorded entries. Socket load balancing does not read Maglev tables.
func fill(maps map[string]*ebpf.Map, of state) {
	for name, entries := range of.Maps {
		if maps[name] == nil || maps[name].Type() == ebpf.HashOfMaps {
			continue
		}
		for _, it := range entries {
			check(maps[name].Put(bytesOf(it.Key), bytesOf(it.Value)))
		}
	}
	for _, address := range of.Local {
		key, value := make([]byte, 24), make([]byte, 24)
		bits := address.BitLen()
		// struct ipcache_key of bpf/lib/eps.h: the length of the prefix, and the family at byte 7.
		binary.LittleEndian.PutUint32(key, uint32(32+bits))
		key[7] = byte(1 + bits/128)
		copy(key[8:], address.AsSlice())
		// HOST_ID
		value[0] = 1
		check(maps["cilium_ipcache_v2"].Put(key, value))
	}
}

func accept(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err == nil {
			connection.Close()
		}
	}
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

// peer connects a socket once, and says where to or why not.
func peer(asked question) string {
	kind, family := unix.SOCK_STREAM, unix.AF_INET
	if asked.Protocol == "udp" {
		kind = unix.SOCK_DGRAM
	}
	var place unix.Sockaddr = &unix.SockaddrInet4{Port: int(asked.Port), Addr: to4(asked.Address)}
	if asked.Address.Is6() {
		family = unix.AF_INET6
		place = &unix.SockaddrInet6{Port: int(asked.Port), Addr: asked.Address.As16()}
	}
	socket, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	check(err)
	defer unix.Close(socket)
	// Without it, ports would wait for a minute.
	check(unix.SetsockoptLinger(socket, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	if err := unix.Connect(socket, place); err != nil {
		var number unix.Errno
		if errors.As(err, &number) {
			return unix.ErrnoName(number)
		}
		check(err)
	}
	found, err := unix.Getpeername(socket)
	check(err)
	switch it := found.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(it.Addr), uint16(it.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(it.Addr), uint16(it.Port)).String()
	}
	return "nothing"
}

func to4(address netip.Addr) [4]byte {
	if address.Is4() {
		return address.As4()
	}
	return [4]byte{}
}

func cookie() uint64 {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	check(err)
	value, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	check(err)
	return value
}

func main() {
	if os.Args[1] == "cookie" {
		fmt.Println(cookie())
		return
	}
	lines := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	var of state
	check(lines.Decode(&of))
	collection := load(os.Args[1], of)
	fill(collection.Maps, of)
	for _, port := range of.Ports {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		check(err)
		go accept(listener)
	}
	var attached []link.Link
	for name, kind := range programs {
		options := link.CgroupOptions{Path: os.Args[2], Attach: kind, Program: collection.Programs[name]}
		one, err := link.AttachCgroup(options)
		check(err)
		attached = append(attached, one)
	}
	// A link that is collected as garbage detaches its program.
	defer runtime.KeepAlive(attached)
	pid := []byte(strconv.Itoa(os.Getpid()))
	check(os.WriteFile(filepath.Join(os.Args[2], "cgroup.procs"), pid, 0))
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
			counts[peer(asked)]++
		}
		check(answers.Encode(counts))
	}
}
