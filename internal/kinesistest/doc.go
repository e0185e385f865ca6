// Package kinesistest gives tests a Kinesis to read and write: kinesalite (npm), behind a wrapper on loopback that shifts its clock, injects errors and
// mends what it lacks.
//
//	e := kinesistest.Start(t)       // ends with the test
//	client := kinesis.New(kinesis.Options{BaseEndpoint: aws.String(e.Endpoint()), Region: kinesistest.Region, Credentials: …})
//	e.Shift(6 * time.Minute)        // iterators expire
//	e.Fail("GetRecords", "ProvisionedThroughputExceededException", 3)
//
// It needs Node.js and npm. The packages are those of the lock file, fetched once and kept in the user's cache folder; WEIR_TEST_KINESIS_DIR names a
// folder with node_modules/kinesalite to use instead. Where there is neither, tests that need it are skipped with the reason, and with CI
// set they fail. What the emulator cannot show (paged and filtered listings, child shards, throttling by bytes, enhanced fan-out) is tested against
// scripted answers elsewhere.
package kinesistest
