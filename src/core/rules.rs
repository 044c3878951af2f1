//! The safety rules by name. With the feature `break-rules` single rules can be switched off at
//! run time, so that tests can show each of them to be needed. Without it every rule holds, at no
//! cost: `rule_holds` is a constant.
//!
//! A new rule is one line in the list below, and `if rule_holds(Rule::X)` at its place.

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A rule without which memory would be handed out too early, or returned too early.
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
    /// Of equally large blocks of a stream the one that was freed last is taken first.
    NewestFreeFirst = "newest_free_first",
    /// What is left of a split block waits for what the block waited for.
    SplitInheritsTag = "split_inherits_tag",
    /// Of two coalesced blocks of one stream the later event counts.
    LaterEventStays = "later_event_stays",
    /// A barrier drops only the tags made before its mark was taken.
    BarrierMark = "barrier_mark",
    /// And none that waits for another context.
    ElsewhereOutlastsBarrier = "elsewhere_outlasts_barrier",
    /// A block that another process may have mapped is never handed out again.
    ExportedNotReused = "exported_not_reused",
    /// After the first export large blocks are segments of their own.
    WholeAfterExport = "whole_after_export",
    /// A block inside a segment has a handle of its own, which a driver without us refuses.
    InsideHandleIsOurs = "inside_handle_is_ours",
    /// A segment leaves only when no block in it is allocated.
    ReleaseOnlyFreeSegments = "release_only_free_segments",
    /// Memory goes from behind free blocks only.
    UnmapOnlyFree = "unmap_only_free",
    /// A freed block of a private pool is not reused before the pool ends, or the capture allows
    /// it.
    PrivateWaitsForPool = "private_waits_for_pool",
    /// A capture is given only memory that was not used since it began.
    AdoptOnlyIdle = "adopt_only_idle",
    /// Of what was freed since, only what no node of it names.
    AdoptUnnamed = "adopt_unnamed",
    /// What is freed in a capture behind work outside of it is not used again in it.
    OutsideFreeWaitsForPool = "outside_free_waits_for_pool",
    /// A thread that submits work into a capture takes part in it.
    SubmittingThreadTakesPart = "submitting_thread_takes_part",
    /// And what it has allocated since the begin, and not freed, is the capture's as well.
    AllocatedBlocksJoin = "allocated_blocks_join",
    /// A capture has memory in every context.
    CaptureInEveryContext = "capture_in_every_context",
    /// What no node names is free for every request, once it was freed.
    UnnamedIsFree = "unnamed_is_free",
    /// And before that, where it is freed on a stream that does not capture.
    UnnamedLeavesPool = "unnamed_leaves_pool",
    /// Beside a block that a graph uses, others are freed as anywhere.
    PrivateByBlock = "private_by_block",
    /// An address at which a block begins, or memory of the driver's own, does not name the one
    /// that ends there.
    BeginIsNoEnd = "begin_is_no_end",
    /// What a node names stays the graph's when its capture has ended.
    NamedStaysWithGraph = "named_stays_with_graph",
    /// But not what the program holds, if natively its free takes it away from the graph.
    HeldLeavesWithCapture = "held_leaves_with_capture",
    /// The memory of a capture is its graph's as long as that, or anything made from it, lives.
    PoolLivesWithGraph = "pool_lives_with_graph",
    /// And free for every request only when an event behind its last work is complete.
    PoolEndsBehindEvent = "pool_ends_behind_event",
    /// And the work of other contexts with it.
    PoolEndsBehindOthers = "pool_ends_behind_others",
    /// But at once where each free had waited for all work.
    WaitedPoolEndsAtOnce = "waited_pool_ends_at_once",
    /// Where memory is short, the driver's word on graphs that have just ended is awaited.
    NotesAreAwaited = "notes_are_awaited",
    /// Of those that were launched and of those that were not: each come in an order of their own.
    NotesOfBothKinds = "notes_of_both_kinds",
    /// And again behind frees, which natively wait for their launches.
    NotesBehindFrees = "notes_behind_frees",
    /// What is kept of pinned memory is used by no work any more.
    PinnedFreeWaits = "pinned_free_waits",
    /// And is as new when it is given again.
    PinnedIsZeroed = "pinned_is_zeroed",
    /// None is kept of a context that has ended meanwhile: its addresses may be others' by then.
    KeptWhileOpen = "kept_while_open",
    /// But what is freed while only a reference to its context is given up is kept like any: else
    /// it is lost.
    KeptBesideReferences = "kept_beside_references",
    /// To the program there is nothing where pinned memory is kept that it has freed.
    KeptIsUnknown = "kept_is_unknown",
    /// A reference to a context that is given up waits for no work, though pinned memory is kept.
    ReferenceWaitsForNone = "reference_waits_for_none",
    /// What the driver serves lies in no segment of a context that has ended, though that end is
    /// not noted yet.
    ServedIsNobodys = "served_is_nobodys",
    /// Opens of memory of other processes are counted on while a reference to their context is
    /// given up.
    OpensOutliveReference = "opens_outlive_reference",
    /// Memory is found also while a reference to its context is given up.
    ReferenceHidesNothing = "reference_hides_nothing",
    /// What leaves the memory of a context comes behind its last barrier, also while a reference to
    /// it is given up.
    BarrierOutlastsReference = "barrier_outlasts_reference",
    /// References are counted: one that is not the last to its context changes nothing, however
    /// long the driver takes.
    ReferencesAreCounted = "references_are_counted",
    /// What ends a context waits for all its work while the context is still open to other threads.
    EndWaitsWhileOpen = "end_waits_while_open",
    /// A primary context is not destroyed by the call that destroys others: natively that is
    /// refused at once.
    PrimaryIsNotDestroyed = "primary_is_not_destroyed",
    /// A request that natively goes on waits for no free that has not returned.
    RoomBehindReturnedFrees = "room_behind_returned_frees",
    /// Nor does what tells of memory, or asks for it, in mode `relaxed`.
    OthersPlainFreesForAWhile = "others_plain_frees_for_a_while",
    /// What is kept gives way also where several contexts have submitted.
    KeptGivesWayAnywhere = "kept_gives_way_anywhere",
    /// What waits for a blocking stream waits for the legacy work before a free there.
    FreeJoinsLegacy = "free_joins_legacy",
    /// Also behind a free that no event of its stream is kept of.
    ParkedFreeJoins = "parked_free_joins",
    /// Also where the driver has no event left.
    FreeJoinsWithoutEvent = "free_joins_without_event",
    /// What waits for any other stream waits for what its context was told to wait for before a
    /// free there.
    FreeJoinsContext = "free_joins_context",
    /// Only memory that was not used since the mark is released as idle.
    IdleSinceMark = "idle_since_mark",
    /// What is idle goes back once the barriers of its frees are complete.
    IdleBehindBarrier = "idle_behind_barrier",
    /// The user's other processes are asked for memory before a request fails.
    NeighboursAreAsked = "neighbours_are_asked",
    /// But not for a shortage of something else than memory of the device.
    OtherShortagesFail = "other_shortages_fail",
    /// Nor, as nothing waits then, once the process ends.
    NoPleaAtEnd = "no_plea_at_end",
    /// Requests that wait for memory get it in the order in which they began to wait.
    WaitersQueue = "waiters_queue",
    /// For each GPU, whichever others a process waits for.
    EachGpuHasAFirst = "each_gpu_has_a_first",
    /// No thread of ours is in a context that ends.
    EndHoldsScavengerOff = "end_holds_scavenger_off",
    /// Nor in the driver when the process ends.
    ScavengerStopsAtExit = "scavenger_stops_at_exit",
    /// A request waits for memory that is being released.
    RoomIsAwaited = "room_is_awaited",
    /// As long as that takes, where natively it stands still as long as a free waits.
    StandsStillToTheEnd = "stands_still_to_the_end",
    /// Meanwhile requests of other threads are served.
    MissLetsGo = "miss_lets_go",
    /// And is tried again as long as some has come back since.
    RoomIsTriedAgain = "room_is_tried_again",
    /// Memory goes from behind addresses after the newest barrier has passed.
    UnmapBehindBarrier = "unmap_behind_barrier",
    /// A free of a context block makes a barrier.
    BarrierOnFree = "barrier_on_free",
    /// Before work goes to another stream than the only one so far, the wait that was put off is
    /// put in.
    OtherStreamPays = "other_stream_pays",
    /// Where several streams have work, each waits for the newest barrier before it gets more.
    StreamsWaitForThemselves = "streams_wait_for_themselves",
    /// And for one that is newer than the barrier that it is behind.
    StreamsWaitForTheNewest = "streams_wait_for_the_newest",
    /// The tags that a barrier drops were made before its number was taken.
    TagsBeforeNumber = "tags_before_number",
    /// The end of the only stream puts it in: another one may get its handle.
    EndedStreamPays = "ended_stream_pays",
    /// A launch that may begin before the earlier work of its stream is over is one of another
    /// stream.
    EarlyStartPays = "early_start_pays",
    /// The begin of a capture puts it in: later the wait would kill the capture.
    CapturePaysFirst = "capture_pays_first",
    /// Where a reference to its context is just being given up, too: mostly the context stays.
    ReferenceLessPays = "reference_less_pays",
    /// A forked child takes no lock for it.
    ForkedChildOwesNothing = "forked_child_owes_nothing",
    /// So does work on a stream of our own.
    OwnStreamPays = "own_stream_pays",
    /// And a call that reveals work that the marks do not see.
    BlindSpotPays = "blind_spot_pays",
    /// What streams there were is forgotten behind a barrier by the thread with a lane of its own
    /// only.
    OwnerForgetsStreams = "owner_forgets_streams",
    /// And only if nothing has begun since the barrier's marks were read.
    NothingBegunForgetsStreams = "nothing_begun_forgets_streams",
    /// And only by a barrier of the context that submits: another one's says nothing of its
    /// streams.
    OnlySubmitterForgets = "only_submitter_forgets",
    /// What one context owes is neither paid nor forgotten by another one.
    OneContextOwes = "one_context_owes",
    /// The marks count the ends of submissions, not only their begins.
    ElisionNeedsEnded = "elision_needs_ended",
    /// A barrier covers only up to where everything begun had ended before it.
    CoverNeedsSeen = "cover_needs_seen",
    /// A free shares another thread's barrier only if that was begun after the free.
    ShareNeedsLaterBarrier = "share_needs_later_barrier",
    /// A free waits while host-visible work is in flight.
    VisibleWorkWaits = "visible_work_waits",
    /// Host-visible work is counted before its real call and after it.
    VisibleWorkMarksBothSides = "visible_work_marks_both_sides",
    /// A barrier stands in for a wait only in an exclusive context.
    ExclusiveContextOnly = "exclusive_context_only",
    /// A submission is counted before its thread looks whether it is watched.
    CountedBeforeWatched = "counted_before_watched",
    /// Where the program orders its contexts itself, a call waits for no other thread's free
    /// elsewhere.
    PromisedContextsApart = "promised_contexts_apart",
    /// And a free in the order of a stream asks which context that is of.
    PromisedStreamsAreAsked = "promised_streams_are_asked",
    /// A thread's last free in each context is remembered.
    FreesInEachContext = "frees_in_each_context",
    /// While a capture runs, a free waits natively and makes no barrier.
    CaptureWaitsNatively = "capture_waits_natively",
    /// In mode `strict` every free waits.
    StrictWaits = "strict_waits",
    /// A block freed on a stream is for that stream only until its event is complete.
    AsyncTagWaitsElsewhere = "async_tag_waits_elsewhere",
    /// Only of events that were recorded on one stream each is complete before the next.
    EventsInOrderByStream = "events_in_order_by_stream",
    /// A free on a stream has the event of the one before only if nothing was submitted between the
    /// two.
    SharedEventNeedsQuiet = "shared_event_needs_quiet",
    /// What the block's context has waited for says nothing of a stream of another one.
    StreamElsewhereTags = "stream_elsewhere_tags",
    /// `cuMemFree` of a stream-ordered block parks it: no wait, no barrier.
    FreeOfStreamBlockParks = "free_of_stream_block_parks",
    /// A block that was recorded on other streams is not its stream's at once.
    RecordedStreamsPark = "recorded_streams_park",
    /// After the first blind spot every kernel counts as host-visible.
    VisibleIsSticky = "visible_is_sticky",
    /// A kernel's arguments are searched for addresses of pinned memory.
    ArgumentsAreScanned = "arguments_are_scanned",
    /// Only of kernels of certain libraries it is known that they keep no address out of a table.
    OnlyFrameworksPassTables = "only_frameworks_pass_tables",
    /// And what is an argument by itself they may keep.
    OnlyTablesArePassed = "only_tables_are_passed",
    /// A copy or a fill of pinned memory is host-visible.
    PinnedOperandsAreVisible = "pinned_operands_are_visible",
    /// An address may stand at any byte of a kernel's arguments.
    ArgumentsAtAnyByte = "arguments_at_any_byte",
    /// An address at the end of pinned memory, or a little beside it, names that memory.
    RangesHaveMargins = "ranges_have_margins",
    /// A copy of rows and planes touches what its offsets say, not where its addresses point.
    OffsetsCount = "offsets_count",
    /// A batch of copies reads and writes ordinary memory when it runs.
    BatchesAreVisible = "batches_are_visible",
    /// Pinned memory behind a texture, a surface or a tensor map is host-visible.
    ObjectsAreVisible = "objects_are_visible",
    /// A copy that does not wait where its sides are on devices may have managed memory for a side.
    ManagedCopiesAreVisible = "managed_copies_are_visible",
    /// Another address of host memory makes kernels visible, whichever call tells it.
    OtherAddressIsVisible = "other_address_is_visible",
    /// Access to mapped memory is taken away behind the barriers of earlier frees.
    LessAccessWaits = "less_access_waits",
    /// A green context ends, and its memory stays: it is entered by the primary one.
    GreenIsEnteredByPrimary = "green_is_entered_by_primary",
    /// Unless its end is that of the primary one.
    GreenHoldsPrimary = "green_holds_primary",
    /// A wait with a green context current says nothing of other work.
    GreenWaitIsPartial = "green_wait_is_partial",
    /// What we put on a stream of the program counts as submitted.
    OwnWorkCounts = "own_work_counts",
    /// What nothing uses is filled at once, and not on the stream of its request.
    UnusedIsFilledAtOnce = "unused_is_filled_at_once",
    /// Memory that was filled on its stream is, once freed, behind that.
    FillIsAwaited = "fill_is_awaited",
    /// A stream-ordered free does not wait for the check of its red zone.
    ZonesAreCopied = "zones_are_copied",
    /// A stream-ordered free in a host function is refused, as the driver refuses it.
    CallbackIsAsked = "callback_is_asked",
    /// A call that the driver refuses reveals no observer, makes no work visible, and leaves the
    /// default pool ours.
    RefusedChangesNothing = "refused_changes_nothing",
    /// The driver is not asked for what it says it does not have.
    NothingIsAskedInVain = "nothing_is_asked_in_vain",
    /// A graph that is uploaded where it is instantiated finds room.
    UploadMakesRoom = "upload_makes_room",
    /// What is served in place of the default pool counts in its numbers.
    PoolNumbersAreOurs = "pool_numbers_are_ours",
    /// At the end of the process the barriers of its frees are waited for.
    EndWaits = "end_waits",
    /// By `_exit` for those of other threads only for a while.
    OthersEndForAWhile = "others_end_for_a_while",
    /// Host functions and graphs are host-visible.
    HostFunctionsAreVisible = "host_functions_are_visible",
    /// A wait for an event is a submission: it may hold work of another context.
    EventWaitsCount = "event_waits_count",
    /// The kernels of a communication library are host-visible, whatever their arguments are.
    CommunicationIsVisible = "communication_is_visible",
    /// Only what a communication library makes for itself is no observer.
    OnlyLibrariesAreExempt = "only_libraries_are_exempt",
    /// Not what it has got from the program and registers.
    RegisteredMemoryIsShared = "registered_memory_is_shared",
    /// Nor symmetric memory, which kernels of the program reach.
    SymmetricMemoryIsShared = "symmetric_memory_is_shared",
    /// What ends something that work uses waits for the barriers of earlier frees.
    TeardownWaits = "teardown_waits",
    /// A call that could reach memory past a barrier waits for it first.
    ObserverWaits = "observer_waits",
    /// A query that returns "not ready" waits for its thread's last free and asks again.
    QueryAsksAgain = "query_asks_again",
    /// A query does not wait for the frees of other threads.
    QueryWaitsForOwnFrees = "query_waits_for_own_frees",
    /// A free whose barrier is left out shares the pending one that covers it.
    ElidedFreeShares = "elided_free_shares",
    /// A pending barrier is waited for by the event of its free, not with all work so far.
    PendingBarrierIsOfItsFree = "pending_barrier_is_of_its_free",
    /// An event that may still be waited for is not recorded again.
    EventNotReused = "event_not_reused",
    /// A block is taken from the program before anything else is done for its free.
    ClaimBeforeFree = "claim_before_free",
    /// A block is handed out only after the wait of its barrier is in.
    PublishAfterBarrier = "publish_after_barrier",
    /// A free whose barrier the driver refuses waits natively instead.
    RefusedBarrierWaitsNatively = "refused_barrier_waits_natively",
    /// A free that the driver does not permit leaves the block to the program.
    RefusedFreeKeepsBlock = "refused_free_keeps_block",
    /// No capture begins while a barrier is under way.
    CaptureGate = "capture_gate",
    /// No barrier is begun while a real free may hold the context.
    BarrierGivesWay = "barrier_gives_way",
    /// An allocation in a context with a sticky error asks the driver.
    StickyErrorRefuses = "sticky_error_refuses",
    /// A free that waits for another's barrier is one in progress.
    SharedFreeIsInProgress = "shared_free_is_in_progress",
    /// Segments go back in the order of streams, not by a free that waits for all.
    ReleaseInStreamOrder = "release_in_stream_order",
    /// Memory that went back in the order of a stream is the device's when that was synchronised
    /// with.
    ReleaseSynchronizes = "release_synchronizes",
    /// The synchronising thread does not wait for segments released meanwhile.
    CollectTakesTurns = "collect_takes_turns",
    /// Segments go back behind the events that their blocks wait for.
    ReleaseBehindEvents = "release_behind_events",
    /// A call is made again only if the table of functions says that it may.
    RetryAsListed = "retry_as_listed",
    /// A call that may have been captured is not made again.
    RetryNotInCapture = "retry_not_in_capture",
    /// But one that has left its capture as it was is.
    UnchangedCaptureRetries = "unchanged_capture_retries",
    /// A second try finds its in-out arguments as the program wrote them.
    RetryRestoresSizes = "retry_restores_sizes",
    /// The end of a context takes its segments and blocks with it.
    ContextEndForgets = "context_end_forgets",
    /// Memory counts against the limit before the driver is asked for it.
    LimitClaimsFirst = "limit_claims_first",
    /// A default pool that the program works with is the driver's.
    AsyncNeedsDefaultPool = "async_needs_default_pool",
    /// A free in a capture leaves markers.
    CaptureFreeMarks = "capture_free_marks",
    /// One that is made on no stream leaves markers of every stream.
    CaptureFreeMarksEveryStream = "capture_free_marks_every_stream",
    /// And of nodes that no stream is behind any more.
    CaptureDroppedNodesMark = "capture_dropped_nodes_mark",
    /// A node with an early edge may run on when the nodes behind it are complete.
    CaptureLooseNodesMark = "capture_loose_nodes_mark",
    /// A block is reused by a request of no stream when it is free for every stream of the capture.
    CaptureReuseForEveryStream = "capture_reuse_for_every_stream",
    /// A programmatic edge does not mean that the node before is complete.
    CaptureEarlyIsNotComplete = "capture_early_is_not_complete",
    /// Behind a reuse the next node does not start early.
    CaptureReuseNotEarly = "capture_reuse_not_early",
    /// A reused block keeps waiting for its earlier users.
    CaptureReuseIsMarked = "capture_reuse_is_marked",
    /// A stream that joins late comes behind what was reused before.
    CaptureStreamsAreMended = "capture_streams_are_mended",
    /// What is known of a stream is forgotten when its terminals are set elsewhere.
    CaptureReachAdvances = "capture_reach_advances",
    /// Nothing is reused in a capture that we do not see whole.
    CaptureOpaqueWaits = "capture_opaque_waits",
    /// What the driver is to take back is forgotten before its call.
    OutBeforeDriver = "out_before_driver",
    /// A call that the driver refuses takes out of the books what it has put there, and no more.
    RefusedEntryAlone = "refused_entry_alone",
    /// What is known of the process when the driver is started again stays known.
    SecondInitForgetsNothing = "second_init_forgets_nothing",
    /// The end of a context is the end of those that were there before it, by id.
    EndsWhatWasThere = "ends_what_was_there",
    /// The end of a context takes its kernels with it.
    KernelsEndWithContext = "kernels_end_with_context",
    /// A block that the core has taken for a request is recorded under the same lock.
    ArrivedIsTold = "arrived_is_told",
    /// And keeps the event of its work from then on.
    ArrivedKeepsEvent = "arrived_keeps_event",
    /// The pending barriers of a thread are the process's when the thread has ended.
    PendingBarrierOutlivesThread = "pending_barrier_outlives_thread",
    /// A query waits for the frees of other threads, for a while.
    OthersFreesForAWhile = "others_frees_for_a_while",
    /// What is known of a stream is forgotten when one ends: its handle may be another's then.
    EndedStreamIsForgotten = "ended_stream_is_forgotten",
    /// A free on a stream that is not there frees nothing.
    StreamIsThere = "stream_is_there",
    /// A call that waits in the driver and holds the context meanwhile is announced.
    TeardownIsAnnounced = "teardown_is_announced",
    /// Where memory is short, what work still uses stays for requests that can be ordered behind
    /// it.
    WaitingMemoryStays = "waiting_memory_stays",
    /// A stream-ordered request that finds nothing else takes what other streams still use.
    StreamComesBehindOthers = "stream_comes_behind_others",
    /// Where that lies in pieces, it waits for the streams.
    PiecesAreAwaited = "pieces_are_awaited",
    /// A stream that is given what others still use waits for them.
    BehindOthersWaits = "behind_others_waits",
    /// What `cuMemFree` of stream-ordered memory has freed is free at once where memory is short.
    AssumedOverWhereShort = "assumed_over_where_short",
    /// But not before what its stream had been handed it behind.
    AssumedWaitsForBefore = "assumed_waits_for_before",
    /// A query for the free memory counts what frees would natively have waited for.
    ToldBehindFrees = "told_behind_frees",
    /// A pool is trimmed behind the barriers of earlier frees.
    TrimBehindFrees = "trim_behind_frees",
    /// A stream whose green context is gone captures no more.
    DetachedIsOver = "detached_is_over",
    /// A stream that the driver does not destroy goes on to capture.
    RefusedStreamCaptures = "refused_stream_captures",
    /// A free on a stream that does not capture is tagged while others capture.
    CaptureLeavesTags = "capture_leaves_tags",
}

impl Rule {
    pub fn from_name(name: &str) -> Option<Rule> {
        Rule::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

/// Whether the rule is in force. Always, unless a test has broken it.
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

    /// A bit for each rule, set while it is broken.
    static BROKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

    pub fn rule_holds(rule: Rule) -> bool {
        let (word, bit) = place(rule);
        BROKEN[word].load(Ordering::Relaxed) & bit == 0
    }

    fn place(rule: Rule) -> (usize, u64) {
        let number = rule as u32;
        ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
    }

    /// Breaks exactly the rules named in `names` (separated by commas, spaces ignored), for the
    /// whole process; an empty text mends all. An unknown name is returned and changes nothing.
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
