// Names the programs beside main.go that a build needs, so that go.mod has their modules.

//go:build tools

package main

import _ "github.com/cilium/cilium/cilium-dbg"
