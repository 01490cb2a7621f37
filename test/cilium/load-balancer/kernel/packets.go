package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	ethernet      = 14
	xdpDrop       = 1
)

// sender returns what gives one packet to the program of a network interface, as if it came from
// outside, and says where the program sends it. BPF_PROG_TEST_RUN sends nothing.
func sender(program *ebpf.Program) func(question) string {
	return func(asked question) string {
		if asked.Affine {
			asked.Source = neighborOf(asked.Source)
		}
		packet := packetTo(asked)
		options := ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+256)}
		result, err := program.Run(&options)
		check(err)
		if result == xdpDrop {
			return "drop"
		}
		// Bytes of metadata are in front of it.
		return destinationOf(options.DataOut[len(options.DataOut)-len(packet):])
	}
}

// neighborOf returns another client of the same network.
func neighborOf(client netip.Addr) netip.Addr {
	bytes := client.AsSlice()
	bytes[len(bytes)-1], bytes[len(bytes)-2] = byte(rand.IntN(256)), byte(rand.IntN(256))
	found, _ := netip.AddrFromSlice(bytes)
	return found
}

// packetTo returns the first packet of a connection, from any port.
func packetTo(asked question) []byte {
	protocol, size := byte(6), 20
	if asked.Protocol == "udp" {
		protocol, size = 17, 8
	}
	payload := make([]byte, size)
	binary.BigEndian.PutUint16(payload, uint16(1024+rand.IntN(60000)))
	binary.BigEndian.PutUint16(payload[2:], asked.Port)
	if protocol == 6 {
		// The length of the header in words, and SYN.
		payload[12], payload[13] = 5<<4, 2
	} else {
		binary.BigEndian.PutUint16(payload[4:], uint16(size))
	}
	packet := make([]byte, ethernet, ethernet+60)
	if asked.Address.Is4() {
		binary.BigEndian.PutUint16(packet[12:], etherTypeIPv4)
		header := make([]byte, 20)
		header[0], header[8], header[9] = 4<<4|5, 64, protocol
		binary.BigEndian.PutUint16(header[2:], uint16(20+size))
		copy(header[12:], asked.Source.AsSlice())
		copy(header[16:], asked.Address.AsSlice())
		return append(append(packet, header...), payload...)
	}
	binary.BigEndian.PutUint16(packet[12:], etherTypeIPv6)
	header := make([]byte, 40)
	header[0], header[6], header[7] = 6<<4, protocol, 64
	binary.BigEndian.PutUint16(header[4:], uint16(size))
	copy(header[8:], asked.Source.AsSlice())
	copy(header[24:], asked.Address.AsSlice())
	return append(append(packet, header...), payload...)
}

func destinationOf(packet []byte) string {
	address, ports := packet[ethernet+16:ethernet+20], ethernet+20
	if binary.BigEndian.Uint16(packet[12:]) == etherTypeIPv6 {
		address, ports = packet[ethernet+24:ethernet+40], ethernet+40
	}
	found, _ := netip.AddrFromSlice(address)
	return netip.AddrPortFrom(found, binary.BigEndian.Uint16(packet[ports+2:])).String()
}
