// Command packets sends real packets in network namespaces and tells what the kernel of a node did
// with each. `packets NODE` reads one JSON line per packet ({space, src, srcs, dst, protocol, dport,
// attempts}) and writes one JSON list per line: the outcome of each attempt.
//
//	10.244.1.5:8080     translated to this destination; " m" behind it: masqueraded too
//	pass                went on without translation; " m" behind it: masqueraded
//	reject              an ICMP error came back, no connection was tracked
//	drop                nothing came back, no connection was tracked
//
// The source of truth are the events of new connections (ctnetlink): the kernel sends one when the
// first packet of a connection has passed every hook.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

type question struct {
	Space    string
	Src      string
	Srcs     []string
	Dst      string
	Protocol string
	Dport    uint16
	Attempts int
}

// flow is the original tuple of a connection.
type flow struct {
	protocol uint8
	src, dst netip.AddrPort
}

type attempt struct {
	line    int
	fd      int
	flow    flow
	outcome string
}

const (
	protocolSCTP = 132
	// So many sockets are open at a time.
	batch = 3000
	// A local sender hears of a refused SYN when it sends it again, after a second.
	wait = 1400 * time.Millisecond
)

func must(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

// enter moves the thread to a network namespace.
func enter(name string) {
	file, err := os.Open("/var/run/netns/" + name)
	must(err, "open namespace")
	defer file.Close()
	number := uintptr(308)
	if runtime.GOARCH == "arm64" {
		number = 268
	}
	_, _, failed := syscall.RawSyscall(number, file.Fd(), syscall.CLONE_NEWNET, 0)
	if failed != 0 {
		must(failed, "setns "+name)
	}
}

// Connection tracking.

var (
	lock    sync.Mutex
	tracked = map[flow]flow{}
)

type attributes map[uint16][]byte

func attributesOf(data []byte) attributes {
	found := attributes{}
	for len(data) >= 4 {
		size := int(binary.NativeEndian.Uint16(data))
		if size < 4 || size > len(data) {
			break
		}
		found[binary.NativeEndian.Uint16(data[2:])&0x3fff] = data[4:size]
		data = data[min((size+3)&^3, len(data)):]
	}
	return found
}

func flowOf(tuple []byte) (flow, bool) {
	parts := attributesOf(tuple)
	ip, proto := attributesOf(parts[1]), attributesOf(parts[2])
	src, dst := ip[1], ip[2]
	if src == nil {
		src, dst = ip[3], ip[4]
	}
	from, ok := netip.AddrFromSlice(src)
	to, known := netip.AddrFromSlice(dst)
	if !ok || !known || len(proto[2]) != 2 || len(proto[3]) != 2 {
		return flow{}, false
	}
	return flow{
		protocol: proto[1][0],
		src:      netip.AddrPortFrom(from, binary.BigEndian.Uint16(proto[2])),
		dst:      netip.AddrPortFrom(to, binary.BigEndian.Uint16(proto[3])),
	}, true
}

func netlink(groups uint32) int {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, 12)
	must(err, "netlink socket")
	const receiveBufferForce = 33
	must(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, receiveBufferForce, 1<<26), "buffer")
	address := &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: groups}
	must(syscall.Bind(fd, address), "bind netlink")
	return fd
}

// follow notes every new connection, for ever.
func follow(fd int) {
	buffer := make([]byte, 1<<20)
	for {
		count, _, err := syscall.Recvfrom(fd, buffer, 0)
		if err == syscall.EINTR {
			continue
		}
		must(err, "events of connections")
		for data := buffer[:count]; len(data) >= 20; {
			size := int(binary.NativeEndian.Uint32(data))
			if size < 20 || size > len(data) {
				break
			}
			parts := attributesOf(data[20:size])
			original, ok := flowOf(parts[1])
			reply, known := flowOf(parts[2])
			if ok && known {
				lock.Lock()
				tracked[original] = reply
				lock.Unlock()
			}
			data = data[min((size+3)&^3, len(data)):]
		}
	}
}

// flush forgets every connection of the node: an old entry would make no event.
func flush(fd int) {
	message := make([]byte, 20)
	binary.NativeEndian.PutUint32(message, 20)
	binary.NativeEndian.PutUint16(message[4:], 1<<8|2)
	binary.NativeEndian.PutUint16(message[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	address := &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}
	must(syscall.Sendto(fd, message, 0, address), "flush")
	_, _, err := syscall.Recvfrom(fd, make([]byte, 4096), 0)
	must(err, "flush")
}

// Senders.

func sockaddr(address netip.AddrPort) syscall.Sockaddr {
	if address.Addr().Is4() {
		return &syscall.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}
	}
	return &syscall.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()}
}

func addressOf(address syscall.Sockaddr) netip.AddrPort {
	switch known := address.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(known.Addr), uint16(known.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(known.Addr), uint16(known.Port))
	}
	return netip.AddrPort{}
}

func familyOf(address netip.Addr) int {
	if address.Is4() {
		return syscall.AF_INET
	}
	return syscall.AF_INET6
}

var kinds = map[string]struct{ kind, number int }{
	"TCP":  {syscall.SOCK_STREAM, syscall.IPPROTO_TCP},
	"UDP":  {syscall.SOCK_DGRAM, syscall.IPPROTO_UDP},
	"SCTP": {syscall.SOCK_RAW, protocolSCTP},
}

// send sends one packet, as the k-th attempt of a line.
func send(line int, q question, k int) *attempt {
	src := q.Src
	if len(q.Srcs) > 0 {
		src = q.Srcs[k%len(q.Srcs)]
	}
	from, err := netip.ParseAddr(src)
	must(err, "source")
	to, err := netip.ParseAddr(q.Dst)
	must(err, "destination")
	kind := kinds[q.Protocol]
	fd, err := syscall.Socket(familyOf(to), kind.kind|syscall.SOCK_NONBLOCK, kind.number)
	must(err, "socket")
	must(syscall.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0))), "bind "+src)
	one := &attempt{line: line, fd: fd, outcome: "drop"}
	one.flow = flow{protocol: uint8(kind.number), dst: netip.AddrPortFrom(to, q.Dport)}
	if q.Protocol == "SCTP" {
		one.flow.src = netip.AddrPortFrom(from, uint16(20000+line%2000*16+k))
		must(syscall.Connect(fd, sockaddr(netip.AddrPortFrom(to, 0))), "connect")
		_, _ = syscall.Write(fd, initChunk(one.flow.src.Port(), q.Dport))
		return one
	}
	bound, err := syscall.Getsockname(fd)
	must(err, "name")
	one.flow.src = addressOf(bound)
	// A sender that is not allowed to send hears so; the outcome shows it.
	_ = syscall.Connect(fd, sockaddr(one.flow.dst))
	if q.Protocol == "UDP" {
		_, _ = syscall.Write(fd, []byte{0})
	}
	return one
}

// initChunk is an SCTP packet that asks for an association.
func initChunk(sport, dport uint16) []byte {
	packet := make([]byte, 32)
	binary.BigEndian.PutUint16(packet, sport)
	binary.BigEndian.PutUint16(packet[2:], dport)
	packet[12] = 1
	binary.BigEndian.PutUint16(packet[14:], 20)
	binary.BigEndian.PutUint32(packet[16:], 1)
	binary.BigEndian.PutUint32(packet[20:], 1<<16)
	binary.BigEndian.PutUint16(packet[24:], 1)
	binary.BigEndian.PutUint16(packet[26:], 1)
	binary.BigEndian.PutUint32(packet[28:], 1)
	sum := crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(packet[8:], sum)
	return packet
}

// judge says what became of an attempt, and closes its socket.
func judge(one *attempt) {
	code, _ := syscall.GetsockoptInt(one.fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
	syscall.Close(one.fd)
	lock.Lock()
	reply, ok := tracked[one.flow]
	lock.Unlock()
	switch {
	case ok:
		one.outcome = "pass"
		if reply.src != one.flow.dst {
			one.outcome = reply.src.String()
		}
		if reply.dst != one.flow.src {
			one.outcome += " m"
		}
	case code == int(syscall.ECONNREFUSED):
		one.outcome = "reject"
	}
}

func main() {
	runtime.LockOSThread()
	limit := syscall.Rlimit{Cur: 2 * batch, Max: 2 * batch}
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	enter(os.Args[1])
	go follow(netlink(1))
	control := netlink(0)
	var questions []question
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 1<<20), 1<<20)
	for input.Scan() {
		var q question
		must(json.Unmarshal(input.Bytes(), &q), "question")
		questions = append(questions, q)
	}
	outcomes := make([][]string, len(questions))
	var open []*attempt
	finish := func() {
		time.Sleep(wait)
		for _, one := range open {
			judge(one)
			outcomes[one.line] = append(outcomes[one.line], one.outcome)
		}
		open = nil
		flush(control)
		lock.Lock()
		tracked = map[flow]flow{}
		lock.Unlock()
	}
	flush(control)
	for line, q := range questions {
		enter(q.Space)
		for k := range q.Attempts {
			open = append(open, send(line, q, k))
		}
		if len(open) >= batch {
			finish()
		}
	}
	finish()
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for _, list := range outcomes {
		text, err := json.Marshal(list)
		must(err, "answer")
		fmt.Fprintf(output, "%s\n", text)
	}
}
