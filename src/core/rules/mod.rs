//! The safety rules by name. With the feature `break-rules` single rules can be switched off at
//! run time, so that tests can show each of them to be needed. Without it every rule holds, at no
//! cost: `rule_holds` is a constant.
//!
//! A new rule is one line in the list below, and `if rule_holds(Rule::X)` at its place.

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A rule without which memory would be reused too early, or released too early.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Rule {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Rule {
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Rule::$variant => $name,)*
                }
            }
        }
    };
}

rules! {
    /// Free blocks coalesce only if both are free for every request, or both for the same stream.
    MergeSameTagOnly = "merge_same_tag_only",
    /// `cuMemAlloc` takes no block that still waits for something.
    ContextTakesUntaggedOnly = "context_takes_untagged_only",
    /// A stream takes no block that was freed on another stream.
    StreamTakesOwnTagOnly = "stream_takes_own_tag_only",
    /// Among equally large blocks of a stream, the one freed last is taken first.
    NewestFreeFirst = "newest_free_first",
    /// The remainder of a split block waits for whatever the block waited for.
    SplitInheritsTag = "split_inherits_tag",
    /// When two blocks of one stream coalesce, the later event counts.
    LaterEventStays = "later_event_stays",
    /// A barrier drops only the tags made before its counters were read.
    BarrierMark = "barrier_mark",
    /// A barrier drops no tag that waits for another context.
    ElsewhereOutlastsBarrier = "elsewhere_outlasts_barrier",
    /// A block that another process may have mapped is never handed out again.
    ExportedNotReused = "exported_not_reused",
    /// After the first export, each large block gets its own segment.
    WholeAfterExport = "whole_after_export",
    /// A block inside a segment has its own handle, which the driver itself would refuse.
    InsideHandleIsOurs = "inside_handle_is_ours",
    /// A segment is released only if none of its blocks is allocated.
    ReleaseOnlyFreeSegments = "release_only_free_segments",
    /// Memory is unmapped only from free blocks.
    UnmapOnlyFree = "unmap_only_free",
    /// A freed block of a private pool is not reused before the pool ends, unless the capture
    /// allows it.
    PrivateWaitsForPool = "private_waits_for_pool",
    /// A capture adopts only memory that has not been used since it began.
    AdoptOnlyIdle = "adopt_only_idle",
    /// Memory freed since the capture began is adopted only if no graph node references it.
    AdoptUnreferenced = "adopt_unreferenced",
    /// A block freed in a capture, ordered after work outside of it, is not reused in that capture.
    OutsideFreeWaitsForPool = "outside_free_waits_for_pool",
    /// A thread that submits work into a capture takes part in it.
    SubmittingThreadTakesPart = "submitting_thread_takes_part",
    /// Blocks that a participating thread has allocated since the capture began, and not freed,
    /// belong to the capture as well.
    AllocatedBlocksJoin = "allocated_blocks_join",
    /// A capture has memory in every context.
    CaptureInEveryContext = "capture_in_every_context",
    /// A freed block that no node references is free for every request.
    UnreferencedIsFree = "unreferenced_is_free",
    /// An unreferenced block leaves the pool early if it is freed on a stream that does not
    /// capture.
    UnreferencedLeavesPool = "unreferenced_leaves_pool",
    /// Blocks beside one that a graph uses are freed as usual.
    PrivateByBlock = "private_by_block",
    /// An address at which a block begins, or memory of the driver itself, is no reference to the
    /// block that ends there.
    BeginIsNoEnd = "begin_is_no_end",
    /// A block that a node references stays with the graph when its capture has ended.
    ReferencedStaysWithGraph = "referenced_stays_with_graph",
    /// A referenced block that the program still holds leaves with the capture, if the driver's own
    /// free would take it away from the graph.
    HeldLeavesWithCapture = "held_leaves_with_capture",
    /// The memory of a capture belongs to its graph as long as the graph, or anything made from it,
    /// lives.
    PoolLivesWithGraph = "pool_lives_with_graph",
    /// The memory of an ended pool becomes free for every request only when an event recorded after
    /// its last work is complete.
    PoolEndsAfterEvent = "pool_ends_after_event",
    /// An ended pool also waits for the work of other contexts.
    PoolEndsAfterOtherContexts = "pool_ends_after_other_contexts",
    /// A pool ends at once if each of its frees had waited for all work.
    WaitedPoolEndsAtOnce = "waited_pool_ends_at_once",
    /// When memory is short, the library waits for the driver to report graphs that have just
    /// ended.
    GraphEndsAreAwaited = "graph_ends_are_awaited",
    /// Launched and never-launched graphs are reported in separate orders; wait for both.
    GraphEndsOfBothKinds = "graph_ends_of_both_kinds",
    /// The library waits for these reports again after frees that in the driver would wait for the
    /// graphs' launches.
    GraphEndsAfterFrees = "graph_ends_after_frees",
    /// Cached pinned memory is no longer used by any work.
    PinnedFreeWaits = "pinned_free_waits",
    /// Cached pinned memory is zeroed before it is reused.
    PinnedIsZeroed = "pinned_is_zeroed",
    /// No pinned memory is cached for a context that has ended meanwhile: its addresses may belong
    /// to others by then.
    KeptWhileOpen = "kept_while_open",
    /// Pinned memory freed while a mere reference to its context is released is cached as usual.
    KeptBesideReferences = "kept_beside_references",
    /// Cached pinned memory that the program has freed does not exist for the program.
    KeptIsUnknown = "kept_is_unknown",
    /// Releasing a reference to a context waits for no work, although pinned memory is cached.
    ReferenceWaitsForNone = "reference_waits_for_none",
    /// Memory served by the driver lies in no segment of an ended context, even before that end is
    /// noted.
    ServedIsInNoSegment = "served_is_in_no_segment",
    /// The count of opened memory of other processes continues while a reference to their context
    /// is released.
    OpensOutliveReference = "opens_outlive_reference",
    /// Memory is found even while a reference to its context is being released.
    ReferenceHidesNothing = "reference_hides_nothing",
    /// Memory that leaves a context is ordered after its last barrier, even while a reference to
    /// the context is being released.
    BarrierOutlastsReference = "barrier_outlasts_reference",
    /// References are counted: releasing one that is not the last changes nothing, however long the
    /// driver takes.
    ReferencesAreCounted = "references_are_counted",
    /// A call that ends a context waits for all its work while the context is still open to other
    /// threads.
    EndWaitsWhileOpen = "end_waits_while_open",
    /// The call that destroys other contexts does not destroy a primary one: the driver refuses
    /// that at once.
    PrimaryIsNotDestroyed = "primary_is_not_destroyed",
    /// A request that would proceed in the driver waits for no free that has not returned.
    OnlyReturnedFreesAreAwaited = "only_returned_frees_are_awaited",
    /// In mode `relaxed`, calls that report or request memory wait for plain frees of other threads
    /// only for a limited time.
    OthersPlainFreesForAWhile = "others_plain_frees_for_a_while",
    /// Cached memory is released for a request even if several contexts have submitted.
    KeptIsReleasedInAnyContext = "kept_is_released_in_any_context",
    /// A wait for a blocking stream includes the legacy work that preceded a free there.
    FreeJoinsLegacy = "free_joins_legacy",
    /// Legacy work is included even for a free without an event of its stream.
    PendingFreeJoinsLegacy = "pending_free_joins_legacy",
    /// Legacy work is included even if the driver has no event left.
    FreeJoinsWithoutEvent = "free_joins_without_event",
    /// A wait for any other stream includes everything its context had to wait for before a free
    /// there.
    FreeJoinsContext = "free_joins_context",
    /// Only memory that was not used since the epoch is released as idle.
    IdleSinceMark = "idle_since_mark",
    /// Idle memory is released once the barriers of its frees are complete.
    IdleAfterBarrier = "idle_after_barrier",
    /// The user's peer processes are asked for memory before a request fails.
    PeersAreAsked = "peers_are_asked",
    /// A request that lacks something other than device memory fails without a reclaim request.
    OtherShortagesFail = "other_shortages_fail",
    /// No reclaim request is sent once the process ends, since nothing waits then.
    NoReclaimAtExit = "no_reclaim_at_exit",
    /// Requests that wait for memory get it in the order in which they began to wait.
    WaitersQueue = "waiters_queue",
    /// Each GPU has its own queue, whichever other GPUs a process waits for.
    EachGpuHasAFirst = "each_gpu_has_a_first",
    /// No thread of the library is in a context that ends.
    ContextEndStopsScavenger = "context_end_stops_scavenger",
    /// No thread of the library is in the driver when the process ends.
    ScavengerStopsAtExit = "scavenger_stops_at_exit",
    /// A request waits for memory that is being released.
    ReleaseInProgressIsAwaited = "release_in_progress_is_awaited",
    /// The request waits as long as that takes if in the driver it would block for as long as a
    /// free waits.
    BlockedRequestHasNoBound = "blocked_request_has_no_bound",
    /// Requests of other threads are served while a miss waits.
    WaitingMissBlocksNobody = "waiting_miss_blocks_nobody",
    /// The request is retried as long as some memory has been released since.
    ReleasedMemoryIsRetried = "released_memory_is_retried",
    /// Memory is unmapped only after the newest barrier is complete.
    UnmapAfterBarrier = "unmap_after_barrier",
    /// A free of a context block records a barrier.
    BarrierOnFree = "barrier_on_free",
    /// Before work goes to a second stream, the deferred wait is submitted.
    OtherStreamFlushes = "other_stream_flushes",
    /// If several streams have work, each waits for the newest barrier before it gets more.
    StreamsWaitForThemselves = "streams_wait_for_themselves",
    /// A stream waits again if there is a newer barrier than the one it has waited for.
    StreamsWaitForTheNewest = "streams_wait_for_the_newest",
    /// The tags that a barrier drops were made before its number was taken.
    TagsBeforeNumber = "tags_before_number",
    /// The end of the only stream submits the deferred wait: another stream may get its handle.
    EndedStreamFlushes = "ended_stream_flushes",
    /// A launch that may begin before the earlier work of its stream is complete counts as work of
    /// another stream.
    ProgrammaticLaunchFlushes = "programmatic_launch_flushes",
    /// The beginning of a capture submits the deferred wait: later the wait would invalidate the
    /// capture.
    CaptureFlushesFirst = "capture_flushes_first",
    /// The deferred wait is submitted even while a reference to its context is being released: the
    /// context usually survives.
    ReleasedReferenceFlushes = "released_reference_flushes",
    /// A forked child takes no lock for a deferred wait.
    ForkedChildFlushesNothing = "forked_child_flushes_nothing",
    /// Work on a stream of the library submits the deferred wait.
    LibraryStreamFlushes = "library_stream_flushes",
    /// A call that reveals submissions the counters do not see submits the deferred wait.
    UntrackedSubmissionFlushes = "untracked_submission_flushes",
    /// Only the thread with its own lane forgets after a barrier which streams had work.
    OwnerForgetsStreams = "owner_forgets_streams",
    /// The streams are forgotten only if nothing has begun since the barrier's counters were read.
    NothingBegunForgetsStreams = "nothing_begun_forgets_streams",
    /// The streams are forgotten only by a barrier of the submitting context: a barrier of another
    /// one proves nothing about its streams.
    OnlySubmitterForgets = "only_submitter_forgets",
    /// The deferred wait of one context is neither submitted nor forgotten by another one.
    DeferralIsPerContext = "deferral_is_per_context",
    /// The counters count the ends of submissions, not only their beginnings.
    ElisionNeedsEnded = "elision_needs_ended",
    /// A barrier covers submissions only up to a point at which every begun one had ended.
    CoverNeedsSeen = "cover_needs_seen",
    /// A free shares another thread's barrier only if the barrier was begun after the free.
    ShareNeedsLaterBarrier = "share_needs_later_barrier",
    /// A free waits while host-visible work is in flight.
    VisibleWorkWaits = "visible_work_waits",
    /// Host-visible work is counted before its real call and after it.
    VisibleWorkMarksBothSides = "visible_work_marks_both_sides",
    /// A barrier stands in for a wait only in an exclusive context.
    ExclusiveContextOnly = "exclusive_context_only",
    /// A submission is counted before its thread checks whether submissions are watched.
    CountedBeforeWatched = "counted_before_watched",
    /// If the program orders its contexts itself, a call does not wait for another thread's free in
    /// another context.
    PromisedContextsApart = "promised_contexts_apart",
    /// In that case, a free in stream order checks which context the stream belongs to.
    PromisedStreamsAreAsked = "promised_streams_are_asked",
    /// A thread's last free in each context is remembered.
    FreesInEachContext = "frees_in_each_context",
    /// While a capture runs, a free lets the driver wait and records no barrier.
    CaptureWaitsInDriver = "capture_waits_in_driver",
    /// In mode `strict` every free waits.
    StrictWaits = "strict_waits",
    /// A block freed on a stream is available to that stream only until its event is complete.
    AsyncTagWaitsElsewhere = "async_tag_waits_elsewhere",
    /// Only events that were recorded on one stream are known to complete in order.
    EventsInOrderByStream = "events_in_order_by_stream",
    /// A free on a stream shares the event of the previous free only if nothing was submitted
    /// between the two.
    SharedEventNeedsQuiet = "shared_event_needs_quiet",
    /// What the block's context has waited for proves nothing about a stream of another context.
    StreamElsewhereTags = "stream_elsewhere_tags",
    /// `cuMemFree` of a stream-ordered block leaves a pending free: no wait, no barrier.
    FreeOfStreamBlockIsPending = "free_of_stream_block_is_pending",
    /// A block that was recorded on other streams does not return to its stream at once.
    RecordedStreamsArePending = "recorded_streams_are_pending",
    /// After the first untracked submission every kernel counts as host-visible.
    VisibleIsSticky = "visible_is_sticky",
    /// A kernel's arguments are searched for addresses of pinned memory.
    ArgumentsAreScanned = "arguments_are_scanned",
    /// Only kernels of certain libraries are known to keep no address out of a table.
    OnlyFrameworksPassTables = "only_frameworks_pass_tables",
    /// These kernels may keep an address that is an argument by itself.
    OnlyTablesArePassed = "only_tables_are_passed",
    /// A copy or a fill of pinned memory is host-visible.
    PinnedOperandsAreVisible = "pinned_operands_are_visible",
    /// An address may stand at any byte of a kernel's arguments.
    ArgumentsAtAnyByte = "arguments_at_any_byte",
    /// An address at the end of pinned memory, or slightly outside of it, references that memory.
    RangesHaveMargins = "ranges_have_margins",
    /// A copy of rows and planes touches what its offsets select, not where its addresses point.
    OffsetsCount = "offsets_count",
    /// A batch of copies reads and writes ordinary memory when it runs.
    BatchesAreVisible = "batches_are_visible",
    /// Pinned memory accessed through a texture, a surface or a tensor map is host-visible.
    ObjectsAreVisible = "objects_are_visible",
    /// A copy that does not wait when its operands are on devices may have a managed operand.
    ManagedCopiesAreVisible = "managed_copies_are_visible",
    /// A second address of host memory makes kernels visible, whichever call returns it.
    OtherAddressIsVisible = "other_address_is_visible",
    /// Access to mapped memory is revoked only after the barriers of earlier frees.
    LessAccessWaits = "less_access_waits",
    /// When a green context ends, its memory stays and is accessed through the primary context.
    GreenIsEnteredByPrimary = "green_is_entered_by_primary",
    /// The memory does not stay if the primary context ends with it.
    GreenHoldsPrimary = "green_holds_primary",
    /// A wait with a green context current proves nothing about other work.
    GreenWaitIsPartial = "green_wait_is_partial",
    /// Work that the library submits to a stream of the program counts as submitted.
    OwnWorkCounts = "own_work_counts",
    /// Memory that nothing uses is filled at once, and not on the stream of its request.
    UnusedIsFilledAtOnce = "unused_is_filled_at_once",
    /// Memory that was filled on its stream is ordered after that fill once it is freed.
    FillIsAwaited = "fill_is_awaited",
    /// A stream-ordered free does not wait for the check of its red zone.
    ZonesAreCopied = "zones_are_copied",
    /// A stream-ordered free in a host function is refused, as the driver refuses it.
    CallbackIsAsked = "callback_is_asked",
    /// A call that the driver refuses reveals no observer, makes no work visible, and keeps the
    /// default pool with the library.
    RefusedChangesNothing = "refused_changes_nothing",
    /// The driver is not asked for anything it reports not to have.
    OnlySupportedQueries = "only_supported_queries",
    /// A graph that is uploaded when it is instantiated finds memory.
    UploadMakesRoom = "upload_makes_room",
    /// Memory served in place of the default pool counts in the pool's attributes.
    PoolNumbersAreOurs = "pool_numbers_are_ours",
    /// The end of the process waits for the barriers of its frees.
    EndWaits = "end_waits",
    /// `_exit` waits for the barriers of other threads only for a limited time.
    OthersEndForAWhile = "others_end_for_a_while",
    /// Host functions and graphs are host-visible.
    HostFunctionsAreVisible = "host_functions_are_visible",
    /// A wait for an event is a submission: it may hold work of another context.
    EventWaitsCount = "event_waits_count",
    /// The kernels of a communication library are host-visible, whatever their arguments are.
    CommunicationIsVisible = "communication_is_visible",
    /// Only memory that a communication library creates for itself is exempt from being an
    /// observer.
    OnlyLibrariesAreExempt = "only_libraries_are_exempt",
    /// Memory that a communication library receives from the program and registers is shared.
    RegisteredMemoryIsShared = "registered_memory_is_shared",
    /// Symmetric memory is shared, because kernels of the program reach it.
    SymmetricMemoryIsShared = "symmetric_memory_is_shared",
    /// A call that destroys something work uses waits for the barriers of earlier frees.
    TeardownWaits = "teardown_waits",
    /// A call that could reach memory past a barrier waits for it first.
    ObserverWaits = "observer_waits",
    /// A query that returns "not ready" waits for its thread's last free and is repeated.
    QueryAsksAgain = "query_asks_again",
    /// A query does not wait for the frees of other threads.
    QueryWaitsForOwnFrees = "query_waits_for_own_frees",
    /// A free whose barrier is skipped shares the pending one that covers it.
    ElidedFreeShares = "elided_free_shares",
    /// A pending barrier is awaited through the event of its free, not with all work so far.
    PendingBarrierIsOfItsFree = "pending_barrier_is_of_its_free",
    /// An event that may still be awaited is not recorded again.
    EventNotReused = "event_not_reused",
    /// A block is claimed from the program before anything else is done for its free.
    ClaimBeforeFree = "claim_before_free",
    /// A block is published only after the wait of its barrier is submitted.
    PublishAfterBarrier = "publish_after_barrier",
    /// If the driver refuses the barrier of a free, the driver itself waits instead.
    RefusedBarrierWaitsInDriver = "refused_barrier_waits_in_driver",
    /// A free that the driver does not permit leaves the block to the program.
    RefusedFreeKeepsBlock = "refused_free_keeps_block",
    /// No capture begins while a barrier is being recorded.
    CaptureExcludesBarriers = "capture_excludes_barriers",
    /// No barrier begins while a real free may hold the context.
    BarrierAvoidsRealFree = "barrier_avoids_real_free",
    /// An allocation in a context with a sticky error asks the driver.
    StickyErrorRefuses = "sticky_error_refuses",
    /// A free that waits for another's barrier is one in progress.
    SharedFreeIsInProgress = "shared_free_is_in_progress",
    /// Segments are released in stream order, not by a free that waits for all work.
    ReleaseInStreamOrder = "release_in_stream_order",
    /// Memory released in stream order returns to the device when that stream is synchronized.
    ReleaseSynchronizes = "release_synchronizes",
    /// The synchronizing thread does not wait for segments released meanwhile.
    CollectTakesTurns = "collect_takes_turns",
    /// Segments are released after the events that their blocks wait for.
    ReleaseAfterEvents = "release_after_events",
    /// A call is retried only if the table of functions allows it.
    RetryAsListed = "retry_as_listed",
    /// A call that may have been captured is not retried.
    RetryNotInCapture = "retry_not_in_capture",
    /// A captured call that left its capture unchanged is retried.
    UnchangedCaptureRetries = "unchanged_capture_retries",
    /// A retry receives its in-out arguments as the program wrote them.
    RetryRestoresSizes = "retry_restores_sizes",
    /// The end of a context takes its segments and blocks with it.
    ContextEndForgets = "context_end_forgets",
    /// Memory counts against the limit before the driver is asked for it.
    LimitClaimsFirst = "limit_claims_first",
    /// A default pool that the program works with is left to the driver.
    AsyncNeedsDefaultPool = "async_needs_default_pool",
    /// A free in a capture leaves markers.
    CaptureFreeMarks = "capture_free_marks",
    /// A free on no stream leaves markers of every stream.
    CaptureFreeMarksEveryStream = "capture_free_marks_every_stream",
    /// A free on no stream also leaves markers of nodes that no stream follows any more.
    CaptureDroppedNodesMark = "capture_dropped_nodes_mark",
    /// A node with an early edge may still run when its successors are complete.
    CaptureLooseNodesMark = "capture_loose_nodes_mark",
    /// A request of no stream reuses a block when it is free for every stream of the capture.
    CaptureReuseForEveryStream = "capture_reuse_for_every_stream",
    /// A programmatic edge does not mean that its source node is complete.
    CaptureEarlyIsNotComplete = "capture_early_is_not_complete",
    /// The next node after a reuse does not start early.
    CaptureReuseNotEarly = "capture_reuse_not_early",
    /// A reused block keeps waiting for its earlier users.
    CaptureReuseIsMarked = "capture_reuse_is_marked",
    /// A stream that joins late is ordered after the earlier users of reused blocks.
    CaptureEdgesAreAdded = "capture_edges_are_added",
    /// What is known of a stream is forgotten when its terminals move elsewhere.
    CaptureReachAdvances = "capture_reach_advances",
    /// Nothing is reused in a capture that the library does not see whole.
    CaptureOpaqueWaits = "capture_opaque_waits",
    /// An entry that the driver is about to take back is removed before the call.
    OutBeforeDriver = "out_before_driver",
    /// A call that the driver refuses removes exactly the entries it has made.
    RefusedEntryAlone = "refused_entry_alone",
    /// Initializing the driver again forgets nothing about the process.
    SecondInitForgetsNothing = "second_init_forgets_nothing",
    /// The end of a context ends, by id, only what existed before it.
    EndsOnlyWhatExisted = "ends_only_what_existed",
    /// The end of a context takes its kernels with it.
    KernelsEndWithContext = "kernels_end_with_context",
    /// A block that the core has taken for a request is recorded under the same lock.
    ArrivedIsRecorded = "arrived_is_recorded",
    /// Such a block keeps the event of its work from then on.
    ArrivedKeepsEvent = "arrived_keeps_event",
    /// The pending barriers of a thread pass to the process when the thread ends.
    PendingBarrierOutlivesThread = "pending_barrier_outlives_thread",
    /// A query waits for the frees of other threads for a limited time.
    OthersFreesForAWhile = "others_frees_for_a_while",
    /// What is known of a stream is forgotten when one ends: its handle may be reused.
    EndedStreamIsForgotten = "ended_stream_is_forgotten",
    /// A free on a stream that does not exist frees nothing.
    StreamExists = "stream_exists",
    /// A call that waits in the driver and holds the context meanwhile is announced.
    TeardownIsAnnounced = "teardown_is_announced",
    /// When memory is short, memory that work still uses stays for requests that can be ordered
    /// after it.
    WaitingMemoryStays = "waiting_memory_stays",
    /// A stream-ordered request that finds nothing else takes memory that other streams still use.
    StreamTakesMemoryOfOthers = "stream_takes_memory_of_others",
    /// If that memory lies in pieces, the request waits for the streams.
    PiecesAreAwaited = "pieces_are_awaited",
    /// A stream that is given memory others still use waits for them.
    MemoryOfOthersIsAwaited = "memory_of_others_is_awaited",
    /// Stream-ordered memory freed by `cuMemFree` is free at once when memory is short.
    AssumedOverWhereShort = "assumed_over_where_short",
    /// Such memory still waits for whatever its stream had to wait for when it got the block.
    AssumedWaitsForBefore = "assumed_waits_for_before",
    /// A query for the free memory includes the frees that in the driver it would have waited for.
    FreeMemoryQueryWaits = "free_memory_query_waits",
    /// A pool is trimmed after the barriers of earlier frees.
    TrimAfterFrees = "trim_after_frees",
    /// A stream whose green context is gone no longer captures.
    DetachedIsOver = "detached_is_over",
    /// A stream that the driver fails to destroy continues to capture.
    RefusedStreamCaptures = "refused_stream_captures",
    /// A free on a stream that does not capture is tagged while others capture.
    CaptureLeavesTags = "capture_leaves_tags",
}

impl Rule {
    pub fn from_name(name: &str) -> Option<Rule> {
        Rule::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

/// Returns whether the rule is in force: always, unless a test has broken it.
#[cfg(not(feature = "break-rules"))]
#[inline(always)]
pub const fn rule_holds(_rule: Rule) -> bool {
    true
}

#[cfg(feature = "break-rules")]
pub use switches::{rule_holds, set_broken};

#[cfg(feature = "break-rules")]
mod switches {
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::Rule;

    const WORDS: usize = Rule::ALL.len().div_ceil(u64::BITS as usize);

    /// One bit for each rule, set while it is broken.
    static BROKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    pub fn rule_holds(rule: Rule) -> bool {
        let (word, bit) = place(rule);
        BROKEN[word].load(Ordering::Relaxed) & bit == 0
    }

    fn place(rule: Rule) -> (usize, u64) {
        let number = rule as u32;
        ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
    }

    /// Breaks exactly the rules in `names` (separated by commas, spaces ignored), for the whole
    /// process. An empty text restores all rules.
    ///
    /// # Errors
    ///
    /// Returns an unknown name, and changes nothing.
    pub fn set_broken(names: &str) -> Result<(), &str> {
        let mut broken = [0; WORDS];
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let (word, bit) = place(Rule::from_name(name).ok_or(name)?);
            broken[word] |= bit;
        }
        for (word, bits) in BROKEN.iter().zip(broken) {
            word.store(bits, Ordering::Relaxed);
        }
        Ok(())
    }
}
