package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

var connectPrograms = map[string]ebpf.AttachType{
	"cil_sock4_connect": ebpf.AttachCGroupInet4Connect,
	"cil_sock6_connect": ebpf.AttachCGroupInet6Connect,
}

// connector attaches the socket programs to a cgroup, which this process enters, and returns what
// connects one socket and says where to or why not.
func connector(
	programs map[string]*ebpf.Program, cgroup string, ports map[uint16]bool,
) func(question) string {
	for port := range ports {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		check(err)
		go accept(listener)
	}
	// A link that is collected as garbage detaches its program.
	for name, kind := range connectPrograms {
		options := link.CgroupOptions{Path: cgroup, Attach: kind, Program: programs[name]}
		one, err := link.AttachCgroup(options)
		check(err)
		attached = append(attached, one)
	}
	pid := []byte(strconv.Itoa(os.Getpid()))
	check(os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), pid, 0))
	return peer
}

var attached []link.Link

func accept(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err == nil {
			connection.Close()
		}
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
