package main

import (
	"net"
	"sync"
	"time"
)

// gate is a listener that can be closed for a time: an outage of the API server as clients see it.
type gate struct {
	net.Listener
	mutex sync.Mutex
	until time.Time
	open  map[*gated]bool
	most  int
}

type gated struct {
	net.Conn
	gate *gate
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		accepted, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g.mutex.Lock()
		if time.Now().Before(g.until) {
			g.mutex.Unlock()
			_ = accepted.Close()
			continue
		}
		known := &gated{accepted, g}
		g.open[known] = true
		g.most = max(g.most, len(g.open))
		g.mutex.Unlock()
		return known, nil
	}
}

func (c *gated) Close() error {
	c.gate.mutex.Lock()
	delete(c.gate.open, c)
	c.gate.mutex.Unlock()
	return c.Conn.Close()
}

// shut closes all connections but that of a client, and accepts none for a time.
func (g *gate) shut(lasting time.Duration, except string) {
	g.mutex.Lock()
	g.until = time.Now().Add(lasting)
	var others []*gated
	for known := range g.open {
		if known.RemoteAddr().String() != except {
			others = append(others, known)
		}
	}
	g.mutex.Unlock()
	for _, known := range others {
		_ = known.Close()
	}
}

// connections are how many are open, and the most that were since this was last asked.
func (g *gate) connections() (now, most int) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	now, most = len(g.open), g.most
	g.most = now
	return now, most
}
