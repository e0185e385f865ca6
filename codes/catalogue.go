package codes

// The codes of weir. Keep the list sorted by name.
var (
	AccessDenied        = add("ACCESS_DENIED", ExitConfig, Fatal, "The broker does not let weir do that.", "Grant the operation named in the message, or use another principal.")
	BlobCorrupt         = add("BLOB_CORRUPT", ExitRuntime, Fatal, "A blob is not what its name says: its bytes were changed, or a link, folder or device stands in its place.", "Restore the blob from a backup, or compute it again; it is never read as it is.")
	BlobMissing         = add("BLOB_MISSING", ExitConfig, Fatal, "The blob store holds no blob of this name.", "Check the reference, and that --artifacts names the folder that the result was written to.")
	BrokerRefused       = add("BROKER_REFUSED", ExitRuntime, Retry, "The broker answered a request with an error.", "See the broker's own message; a run goes on from its last cut.")
	BrokerUnreachable   = add("BROKER_UNREACHABLE", ExitUnreachable, Retry, "No broker answered at the given addresses.", "Check --brokers, the network and that the broker runs; `weir broker` starts one for development.")
	CheckpointCorrupt   = add("CHECKPOINT_CORRUPT", ExitRecovery, Fatal, "A checkpoint cannot be trusted: its manifest or a blob of it is damaged or missing.", "Restore the blobs from a backup, or name another checkpoint; none is taken by itself.")
	CheckpointUnknown   = add("CHECKPOINT_UNKNOWN", ExitConfig, Fatal, "The store holds no checkpoint of that run and epoch.", "`weir checkpoint list` shows those that are kept.")
	ChoiceRefused       = add("CHOICE_REFUSED", ExitUsage, Fatal, "An operator's choice does not fit what stands, or does not say who made it and why.", "Choose what the message offers, and say who chooses and why.")
	ConfigInvalid       = add("CONFIG_INVALID", ExitConfig, Fatal, "A setting is out of its range or contradicts another; each is named.", "Mend what the message names.")
	DocumentInvalid     = add("DOCUMENT_INVALID", ExitConfig, Fatal, "A JSON document cannot be read strictly; the place is named.", "Mend the document at the place named.")
	DrillFailed         = add("DRILL_FAILED", ExitDifference, Fatal, "A check of the drill did not hold, or a fault that was planned did not happen.", "See the checks that failed, with their evidence; the report names every process's log.")
	EventNotClaimed     = add("EVENT_NOT_CLAIMED", ExitFenced, Fatal, "An outbox event is not claimed by the caller: it was released, claimed by another, or delivered.", "Nothing has to be done; `weir outbox list` tells where it stands.")
	FenceRegression     = add("FENCE_REGRESSION", ExitRecovery, Fatal, "A run or sink has seen a higher fence token than the store gives out: the store has lost what it knew, by a fail-over or an old backup.", "Do not write. Find out what the store lost; restore it, or start a new run id.")
	FileMissing         = add("FILE_MISSING", ExitConfig, Fatal, "A file or folder that was named does not exist or cannot be read.", "Check the path and its permissions.")
	FlowInvalid         = add("FLOW_INVALID", ExitConfig, Fatal, "The flow file has errors; each is listed with its line and column.", "Mend every listed place; `weir lint FLOW` checks again.")
	HandoverUnfinished  = add("HANDOVER_UNFINISHED", ExitRecovery, Fatal, "The run was begun by a batch that takes a history in, and that batch has not ended: the log cannot be read on yet.", "Run the same `weir batch run … --hand-over-to` again: it goes on where it stopped.")
	IdempotencyConflict = add("IDEMPOTENCY_CONFLICT", ExitConfig, Fatal, "The idempotency key was used before with another request.", "Use a new key for a new request, or send the request that the key was used with.")
	Internal            = add("INTERNAL", ExitRuntime, Fatal, "weir met a state that its own rules exclude.", "Report it with the message; nothing after the last committed cut was published.")
	Interrupted         = add("INTERRUPTED", ExitInterrupted, Fatal, "The run was stopped from outside.", "Start it again with the same --run-id; it goes on from its last commit.")
	JournalConflict     = add("JOURNAL_CONFLICT", ExitFenced, Fatal, "Another process committed to the same run since this one read it.", "Stop one of the two processes; each run id has one writer.")
	JournalCorrupt      = add("JOURNAL_CORRUPT", ExitRuntime, Fatal, "What the journal holds is damaged or incomplete.", "Restore the store from a backup, or start a new run id.")
	LeaseHeld           = add("LEASE_HELD", ExitFenced, Fatal, "Another owner holds the lease, and it has not expired.", "Wait until it expires or is released; `weir lease show` names the holder.")
	LimitReached        = add("LIMIT_REACHED", ExitRuntime, Fatal, "A memory limit of the flow was reached: event ids, keys, or records waiting for the watermark.", "Raise the limit named in the message, or shorten the horizon, lateness or gap hold; the run resumes at its last cut.")
	LogInvalid          = add("LOG_INVALID", ExitConfig, Fatal, "An arrival log is not one, is cut short, or does not match its hash.", "Build it again with `weir replay build`.")
	NameInvalid         = add("NAME_INVALID", ExitConfig, Fatal, "A name is not one that can be registered: names are lower-case letters, digits, dots, underscores and hyphens, or 64 hex digits for a blob.", "Use a name from the list; paths and links are never followed.")
	NameUnknown         = add("NAME_UNKNOWN", ExitConfig, Fatal, "No flow or snapshot is registered under this name.", "Put the file into the folder of --flows or --snapshots, or check the spelling.")
	OffsetLost          = add("OFFSET_LOST", ExitRecovery, Fatal, "The log no longer holds the records that the run needs next.", "Restore the records, give them up with `weir recover RUN --partition N --accept-gap`, or start a new run id.")
	OutputUnwritable    = add("OUTPUT_UNWRITABLE", ExitRuntime, Fatal, "A file or stream that was to be written cannot be: no permission, disk full, folder missing.", "Check the path, its permissions and the free space; nothing half-written was left under the final name.")
	PoisonBatch         = add("POISON_BATCH", ExitRecovery, Poison, "A batch of the log cannot be read: damaged, or larger than the limit once decompressed.", "Raise the limit named in the message, or give the batch up with `weir recover RUN --partition N --accept-gap`.")
	PortInUse           = add("PORT_IN_USE", ExitConfig, Fatal, "Another process listens on the port, or the port cannot be opened.", "Choose another port, or stop the other process.")
	ProcessUnreachable  = add("PROCESS_UNREACHABLE", ExitUnreachable, Retry, "The process of a run cannot be asked at the address that was given.", "Check --url, that the run was started with --listen, and that it still runs; --store asks the store instead.")
	PublicationConflict = add("PUBLICATION_CONFLICT", ExitRuntime, Fatal, "A result is published under this key already, with another digest. It was not overwritten.", "Find out why the same key gave two results; `weir reconcile` verifies what is stored.")
	RecordTooLarge      = add("RECORD_TOO_LARGE", ExitConfig, Fatal, "A record is larger than the broker or the producer takes.", "Raise the limit of the topic (max.message.bytes) and of the producer, or make the record smaller.")
	RecordsUndone       = add("RECORDS_UNDONE", ExitRuntime, Fatal, "A log with an end was read to it, and some of its records were not processed: their retry was refused, or a handler did not settle them.", "See the log for the positions and reasons; a consumer that is started again reads them again.")
	RequestInvalid      = add("REQUEST_INVALID", ExitConfig, Fatal, "A request, a cursor or a filter is not one that can be served; the part is named.", "Mend what the message names.")
	RunFinished         = add("RUN_FINISHED", ExitConfig, Fatal, "The run has ended (FINISHED) and is not resumed by accident.", "Use a new --run-id.")
	RunIDInvalid        = add("RUN_ID_INVALID", ExitConfig, Fatal, "The run id is empty, too long, or holds control characters.", "Use 1 to 200 bytes of UTF-8 without control characters.")
	RunMismatch         = add("RUN_MISMATCH", ExitConfig, Fatal, "The run id belongs to another flow, topic or partition layout.", "Use a new --run-id, or the flow and topic that the run was started with.")
	RunNotQueued        = add("RUN_NOT_QUEUED", ExitFenced, Fatal, "The run is not waiting to be started: another worker has it, or it has ended.", "Nothing has to be done; `weir runs show` tells where it stands.")
	RunNotRunning       = add("RUN_NOT_RUNNING", ExitFenced, Fatal, "The run is not running: it was never started, or it has ended.", "Nothing has to be done; `weir runs show` tells where it stands.")
	RunUnknown          = add("RUN_UNKNOWN", ExitConfig, Fatal, "The store holds no run of this id.", "Check the id and the store; `weir runs list` shows the batch runs of a store.")
	ScheduleInvalid     = add("SCHEDULE_INVALID", ExitConfig, Fatal, "The fault schedule has errors; each is listed with its line.", "Mend every listed entry.")
	SnapshotInvalid     = add("SNAPSHOT_INVALID", ExitConfig, Fatal, "A snapshot has a row that cannot be read.", "Mend the row, or the names of id, key and time in the flow; an arrival log is given with --log.")
	SourceEnded         = add("SOURCE_ENDED", ExitRuntime, Fatal, "A log with an end has fewer records than were asked for.", "Ask for as many as there are, or leave the number out.")
	SourceFailure       = add("SOURCE_FAILURE", ExitUnreachable, Retry, "The source failed for a while; it may go on where it was.", "Start again; a run goes on from its last cut.")
	StaleFence          = add("STALE_FENCE", ExitFenced, Fatal, "The lease is no longer held under this token: it expired, was released or was taken over.", "Nothing was written. The owner has to acquire the lease again before it goes on.")
	StoreDenied         = add("STORE_DENIED", ExitConfig, Fatal, "The store refuses weir: the password is wrong, or its role lacks a right.", "Check the password reference; grant the login the role weir_runtime.")
	StoreInvalid        = add("STORE_INVALID", ExitConfig, Fatal, "The store string is not one that weir knows, or names a file of another program.", "Write sqlite:PATH, such as sqlite:weir.db, or postgres://user@host/database.")
	StoreNewer          = add("STORE_NEWER", ExitConfig, Fatal, "The store was written by a newer version of weir, which this one cannot read safely.", "Use the newer version, or another store.")
	StoreOlder          = add("STORE_OLDER", ExitConfig, Fatal, "The store's schema is missing or older than this version of weir needs.", "Run `weir migrate` on it, or have an administrator run what `weir migrate --print` shows.")
	StoreUnavailable    = add("STORE_UNAVAILABLE", ExitUnreachable, Retry, "The store cannot be opened or written: missing folder, no permission, disk full, locked.", "A file: check the path, its permissions and the free space. A server: check its address and that it runs.")
	StoreUnsupported    = add("STORE_UNSUPPORTED", ExitConfig, Fatal, "This version of weir does not have that kind of store.", "Use sqlite:PATH, or PostgreSQL 14 or later.")
	StreamFenceStale    = add("STREAM_FENCE_OBSOLETO", ExitFenced, Fatal, "A stream worker no longer holds the lease of its run: it expired and was taken over, or the worker was stopped for longer than the lease lasts. Nothing it did since was published.", "Nothing is lost: the next owner goes on from the last commit. Start the worker again to stand by.")
	StreamLeaseHeld     = add("STREAM_LEASE_OCUPADO", ExitFenced, Fatal, "Another stream worker owns the run, and its lease has not expired.", "Leave that worker alone, stop it, or start with --standby to take over when its lease ends; `weir lease show` names it.")
	TopicMissing        = add("TOPIC_MISSING", ExitConfig, Fatal, "The topic does not exist. weir does not create input topics.", "Check the spelling of the topic, or create it; `weir replay publish --create-partitions N` creates one.")
	TopicRecreated      = add("TOPIC_RECREATED", ExitRecovery, Fatal, "The topic was deleted and created again since the run's last cut.", "Start a new run id for the new topic.")
)

var catalogue []*Code

func add(name string, exit int, v Verdict, meaning, cure string) *Code {
	c := &Code{Name: name, Exit: exit, Verdict: v, Meaning: meaning, Cure: cure}
	catalogue = append(catalogue, c)
	return c
}

// All returns the catalogue.
func All() []*Code { return catalogue }
