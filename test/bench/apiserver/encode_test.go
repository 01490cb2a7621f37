package main

import (
	"bufio"
	"bytes"
	"testing"
)

// What is written in parts must be what the real encoders write.
func TestWriteEvent(t *testing.T) {
	w := newWorld(500, 5000)
	w.templates = newTemplates(w, 6000)
	c := newCluster(w)
	for _, as := range []format{asJSON, asProtobuf} {
		for _, resource := range resources {
			object := w.appendObject(nil, as, resource, 0, c.now)
			var found bytes.Buffer
			out := bufio.NewWriter(&found)
			writeEvent(out, as, "ADDED", resource, object)
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
			if want := eventFrame(as, "ADDED", resource, object); !bytes.Equal(found.Bytes(), want) {
				t.Errorf("%s as %v: %q, expected %q", resource, as, found.Bytes(), want)
			}
		}
	}
}
