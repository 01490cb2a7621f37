// An API server for load: lists and watches of a made-up cluster that is as large as clusters get,
// in JSON and in protobuf, faster than a client can read them. Nothing can be written.
//
//	apiserver -dir DIR [-share 1] [-pod-bytes 12000] [-bookmark 60s] [-json]
//
// Writes DIR/kubeconfig, prints {"url":…,"kubeconfig":…,"token":…,"authority":…} when it listens, and
// serves until it is killed. All that it shows is as the controllers would have written it, also while pods change:
//
//	POST /control/churn?rate=500   pods that change their readiness, per second; 0 stops
//	                               (kind=alone: that have a new version and nothing else;
//	                               kind=stopped: without controllers that follow)
//	POST /control/outage?seconds=9 closes all connections, and accepts none for this long
//	POST /control/storm?chance=1   answers with a GOAWAY, with this chance (--goaway-chance of
//	                               kube-apiserver); watches end after seconds=2; chance=0 stops
//	GET  /control/stamps           what was sent when (clear=true: and forget it)
//	GET  /control/requests         how often what was asked for
//	GET  /control/world            how many objects there are of each resource
//	GET  /control/connections      how many connections are open, and the most that were
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	dir := flag.String("dir", ".", "where kubeconfig is written")
	share := flag.Int("share", 1, "divides all counts: 1 is the full world of 150,000 pods")
	most := flag.Int("most", 5000, "the most pods of a Service")
	podBytes := flag.Int("pod-bytes", 12_000, "JSON of a pod, with managedFields")
	marks := flag.Duration("bookmark", time.Minute, "time between bookmarks")
	onlyJSON := flag.Bool("json", false, "answer in JSON whatever is asked for")
	flag.Parse()

	w := newWorld(*share, *most)
	w.templates = newTemplates(w, *podBytes)
	c := newCluster(w)
	go c.churnLoop()

	certificate := newCertificate()
	token := newToken()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	listener := &gate{Listener: socket, open: map[*gated]bool{}}
	url := "https://" + listener.Addr().String()
	kubeconfig := filepath.Join(*dir, "kubeconfig")
	writeKubeconfig(kubeconfig, url, token, authority(certificate.Certificate[0]))
	s := &http.Server{
		Handler: &server{cluster: c, gate: listener, token: token, bookmark: *marks,
			onlyJSON: *onlyJSON, requests: map[string]int{}},
		ErrorLog: log.New(os.Stderr, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate},
			NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]string{"url": url, "kubeconfig": kubeconfig,
		"token": token, "authority": authority(certificate.Certificate[0])}))
	check(s.ServeTLS(listener, "", ""))
}

func newToken() string {
	random := make([]byte, 16)
	_, err := rand.Read(random)
	check(err)
	return base64.RawURLEncoding.EncodeToString(random)
}

// newCertificate is signed by itself; the kubeconfig names it as the authority.
func newCertificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "load"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func authority(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func writeKubeconfig(path, url, token, authority string) {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: load
clusters:
  - name: load
    cluster:
      server: %s
      certificate-authority-data: %s
users:
  - name: load
    user:
      token: %s
contexts:
  - name: load
    context:
      cluster: load
      user: load
`, url, base64.StdEncoding.EncodeToString([]byte(authority)), token)
	check(os.WriteFile(path, []byte(text), 0o600))
}
