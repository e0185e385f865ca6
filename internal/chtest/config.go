package chtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The logins of a server. Super may do everything, Reader only read, Poor may ask once a year, and Guarded is asked for Password.
const (
	Super, Reader, Poor, Guarded = "default", "weir_reader", "weir_poor", "weir_guarded"
	Password                     = "canary-5be0c3d9"
)

const configText = `<yandex>
<logger><level>warning</level><log>DIR/log</log><errorlog>DIR/errors</errorlog></logger>
<tcp_port>%d</tcp_port>
<tcp_port_secure>%d</tcp_port_secure>
<listen_host>127.0.0.1</listen_host>
<openSSL><server>
  <certificateFile>DIR/server.crt</certificateFile><privateKeyFile>DIR/server.key</privateKeyFile>
  <verificationMode>none</verificationMode><loadDefaultCAFile>false</loadDefaultCAFile><cacheSessions>false</cacheSessions>
  <disableProtocols>sslv2,sslv3</disableProtocols><preferServerCiphers>true</preferServerCiphers>
</server></openSSL>
<path>DIR/data/</path><tmp_path>DIR/tmp/</tmp_path>
<users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>67108864</mark_cache_size><timezone>UTC</timezone>
</yandex>
`

const usersText = `<yandex>
<profiles>
  <default><max_threads>2</max_threads></default>
  <readonly><readonly>1</readonly></readonly>
</profiles>
<users>USERS</users>
<quotas>
  <default></default>
  <nothing><interval><duration>31536000</duration><errors>0</errors><queries>1</queries></interval></nothing>
</quotas>
</yandex>
`

// configure writes the server's configuration.
func configure(dir string, port, secure int) error {
	var users strings.Builder
	for _, u := range [][4]string{{Super, "", "default", "default"}, {Reader, "", "readonly", "default"}, {Poor, "", "default", "nothing"}, {Guarded, Password, "default", "default"}} {
		fmt.Fprintf(&users, "<%[1]s><password>%[2]s</password><networks><ip>127.0.0.1</ip></networks><profile>%[3]s</profile><quota>%[4]s</quota></%[1]s>", u[0], u[1], u[2], u[3])
	}
	for name, text := range map[string]string{
		"config.xml": strings.ReplaceAll(fmt.Sprintf(configText, port, secure), "DIR", dir),
		"users.xml":  strings.ReplaceAll(usersText, "USERS", users.String()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
