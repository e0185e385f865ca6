-- runtime does what the code does and no more: it has no right to change what was published, admitted or set aside. reader sees the views.
REVOKE ALL ON SCHEMA weir FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA weir FROM PUBLIC;
GRANT USAGE ON SCHEMA weir TO weir_runtime, weir_reader;
GRANT SELECT ON weir.schema_version TO weir_runtime, weir_reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA weir TO weir_runtime;
GRANT SELECT, INSERT, UPDATE ON weir.leases, weir.runs, weir.outbox, weir.journal, weir.checkpoints TO weir_runtime;
GRANT SELECT, INSERT ON weir.admission, weir.publications, weir.journal_outputs, weir.quarantine, weir.decisions TO weir_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON weir.checkpoint_blobs TO weir_runtime;
GRANT SELECT ON weir.runs_shown, weir.leases_shown, weir.outbox_shown, weir.publications_shown, weir.journal_shown TO weir_reader;
