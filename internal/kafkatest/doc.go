// Package kafkatest gives tests an Apache Kafka broker: one node in KRaft mode, on loopback, with its data in a temporary folder.
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }
//
//	func TestX(t *testing.T) {
//		broker := kafkatest.Shared(t)                                   // one for the whole binary
//		own := kafkatest.Start(t, kafkatest.Config{Secure: true})       // or one's own, ended with the test
//	}
//
// Kafka is the artefact org.apache.kafka:kafka_2.13 with its dependencies, fetched by Maven once and kept in the user's cache folder; it needs
// Java 17 or later. The process is ended when its test or Run ends, and by a watchdog when the test binary dies without either.
//
// WEIR_TEST_KAFKA_LIB names a folder with Kafka's jars to use instead of fetching them. Where there is no Java, or neither jars nor Maven, tests
// that need a broker are skipped with the reason, and with CI set they fail.
package kafkatest
