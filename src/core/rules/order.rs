//! The order of a free: barriers, waits, and what the host may see.

macro_rules! order {
    ($join:ident $($others:tt)*) => {
        $join! { $($others)*
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
            /// The end of the only stream submits the deferred wait: another stream may get its
            /// handle.
            EndedStreamFlushes = "ended_stream_flushes",
            /// A launch that may begin before the earlier work of its stream is complete counts as
            /// work of another stream.
            ProgrammaticLaunchFlushes = "programmatic_launch_flushes",
            /// A wait that the driver refuses in a host function stays deferred.
            RefusedWaitStaysDeferred = "refused_wait_stays_deferred",
            /// The beginning of a capture submits the deferred wait: later the wait would
            /// invalidate the capture.
            CaptureFlushesFirst = "capture_flushes_first",
            /// The deferred wait is submitted even while a reference to its context is being
            /// released: the context usually survives.
            ReleasedReferenceFlushes = "released_reference_flushes",
            /// A forked child takes no lock for a deferred wait.
            ForkedChildFlushesNothing = "forked_child_flushes_nothing",
            /// Work on a stream of the library submits the deferred wait.
            LibraryStreamFlushes = "library_stream_flushes",
            /// A call that reveals submissions the counters do not see submits the deferred wait.
            UntrackedSubmissionFlushes = "untracked_submission_flushes",
            /// Only the thread with its own lane forgets after a barrier which streams had work.
            OwnerForgetsStreams = "owner_forgets_streams",
            /// The streams are forgotten only if nothing has begun since the barrier's counters
            /// were read.
            NothingBegunForgetsStreams = "nothing_begun_forgets_streams",
            /// The streams are forgotten only by a barrier of the submitting context: a barrier of
            /// another one proves nothing about its streams.
            OnlySubmitterForgets = "only_submitter_forgets",
            /// The deferred wait of one context is neither submitted nor forgotten by another one.
            DeferralIsPerContext = "deferral_is_per_context",
            /// The counters count the ends of submissions, not only their beginnings.
            ElisionNeedsEnded = "elision_needs_ended",
            /// A barrier covers submissions only up to a point at which every begun one had ended.
            CoverNeedsSeen = "cover_needs_seen",
            /// A free shares another thread's barrier only if the barrier was begun after the free.
            ShareNeedsLaterBarrier = "share_needs_later_barrier",
            /// No capture begins while a barrier is being recorded.
            CaptureExcludesBarriers = "capture_excludes_barriers",
            /// Ranges of pinned memory that a new one overlaps have ended with their context.
            OverlappedRangeIsGone = "overlapped_range_is_gone",
            /// Pinned memory stays known while the driver may still refuse to end it.
            RefusedEndHidesNothing = "refused_end_hides_nothing",
            /// A query waits for another thread's barrier also while a free waits.
            WaitingFreeHidesNone = "waiting_free_hides_none",
            /// A free of a thread that ends waits, once that end may no longer be noticed.
            LateFreesWait = "late_frees_wait",
            /// The end of a thread waits for the barriers of its frees.
            ThreadOutlivesItsBarriers = "thread_outlives_its_barriers",
            /// After a refused call, nothing is restored of what another call has ended since.
            ForgottenStaysForgotten = "forgotten_stays_forgotten",
            /// No barrier begins while a real free may hold the context.
            BarrierAvoidsRealFree = "barrier_avoids_real_free",
            /// If the driver refuses the barrier of a free, the driver itself waits instead.
            RefusedBarrierWaitsInDriver = "refused_barrier_waits_in_driver",
            /// A free that waits for another's barrier is one in progress.
            SharedFreeIsInProgress = "shared_free_is_in_progress",
            /// A barrier stands in for a wait only in an exclusive context.
            ExclusiveContextOnly = "exclusive_context_only",
            /// A submission is counted before its thread checks whether submissions are watched.
            CountedBeforeWatched = "counted_before_watched",
            /// In mode `strict` every free waits.
            StrictWaits = "strict_waits",
            /// A block freed on a stream is available to that stream only until its event is
            /// complete.
            AsyncTagWaitsElsewhere = "async_tag_waits_elsewhere",
            /// Only events that were recorded on one stream are known to complete in order.
            EventsInOrderByStream = "events_in_order_by_stream",
            /// A free on a stream shares the event of the previous free only if nothing was
            /// submitted between the two.
            SharedEventNeedsQuiet = "shared_event_needs_quiet",
            /// What the block's context has waited for proves nothing about a stream of another
            /// context.
            StreamElsewhereTags = "stream_elsewhere_tags",
            /// `cuMemFree` of a stream-ordered block leaves a pending free: no wait, no barrier.
            FreeOfStreamBlockIsPending = "free_of_stream_block_is_pending",
            /// A block that was recorded on other streams does not return to its stream at once.
            RecordedStreamsArePending = "recorded_streams_are_pending",
            /// A wait for a blocking stream includes the legacy work that preceded a free there.
            FreeJoinsLegacy = "free_joins_legacy",
            /// Legacy work is included even for a free without an event of its stream.
            PendingFreeJoinsLegacy = "pending_free_joins_legacy",
            /// Legacy work is included even if the driver has no event left.
            FreeJoinsWithoutEvent = "free_joins_without_event",
            /// A wait for any other stream includes everything its context had to wait for before a
            /// free there.
            FreeJoinsContext = "free_joins_context",
            /// Access to mapped memory is revoked only after the barriers of earlier frees.
            LessAccessWaits = "less_access_waits",
            /// Work that the library submits to a stream of the program counts as submitted.
            OwnWorkCounts = "own_work_counts",
            /// A wait for an event is a submission: it may hold work of another context.
            EventWaitsCount = "event_waits_count",
            /// A call that destroys something work uses waits for the barriers of earlier frees.
            TeardownWaits = "teardown_waits",
            /// A call that could reach memory past a barrier waits for it first.
            ObserverWaits = "observer_waits",
            /// A query that returns "not ready" waits for its thread's last free and is repeated.
            QueryAsksAgain = "query_asks_again",
            /// A query does not wait without a limit for the frees of other threads.
            QueryWaitsForOwnFrees = "query_waits_for_own_frees",
            /// A free whose barrier is skipped shares the pending one that covers it.
            ElidedFreeShares = "elided_free_shares",
            /// A pending barrier is awaited through the event of its free, not with all work so
            /// far.
            PendingBarrierIsOfItsFree = "pending_barrier_is_of_its_free",
            /// An event that may still be awaited is not recorded again.
            EventNotReused = "event_not_reused",
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
            /// The work for which such a call waits is awaited before the call, while other threads
            /// can use the context.
            DriversWaitIsWaitedAhead = "drivers_wait_is_waited_ahead",
            /// Only the work of the memory's context is awaited, and only where it is current.
            OwnersWorkIsWaitedFor = "owners_work_is_waited_for",
            /// A stream-ordered free in a host function is refused, as the driver refuses it.
            CallbackIsAsked = "callback_is_asked",
            /// A call that the driver refuses reveals no observer, makes no work visible, and keeps
            /// the default pool with the library.
            RefusedChangesNothing = "refused_changes_nothing",
            /// The driver is not asked for anything it reports not to have.
            OnlySupportedQueries = "only_supported_queries",
            /// The end of the process waits for the barriers of its frees.
            EndWaits = "end_waits",
            /// `_exit` waits for the barriers of other threads only for a limited time.
            OthersEndForAWhile = "others_end_for_a_while",
            /// A free waits while host-visible work is in flight.
            VisibleWorkWaits = "visible_work_waits",
            /// Host-visible work is counted before its real call and after it.
            VisibleWorkMarksBothSides = "visible_work_marks_both_sides",
            /// Once a cause for it was seen, every kernel counts as host-visible.
            VisibleIsSticky = "visible_is_sticky",
            /// A kernel's arguments are searched for addresses of pinned memory.
            ArgumentsAreScanned = "arguments_are_scanned",
            /// So are the arguments of kernels in graphs.
            NodesAreScanned = "nodes_are_scanned",
            /// After a launch whose arguments are not known, every kernel counts as host-visible.
            UnknownArgumentsStay = "unknown_arguments_stay",
            /// Only kernels of certain libraries are known to keep no address out of a table.
            OnlyFrameworksPassTables = "only_frameworks_pass_tables",
            /// These kernels may keep an address that is an argument by itself.
            OnlyTablesArePassed = "only_tables_are_passed",
            /// A copy or a fill of pinned memory is host-visible.
            PinnedOperandsAreVisible = "pinned_operands_are_visible",
            /// An address may stand at any byte of a kernel's arguments.
            ArgumentsAtAnyByte = "arguments_at_any_byte",
            /// An address at the end of pinned memory, or slightly outside of it, references that
            /// memory.
            RangesHaveMargins = "ranges_have_margins",
            /// A copy of rows and planes touches what its offsets select, not where its addresses
            /// point.
            OffsetsCount = "offsets_count",
            /// A batch of copies reads and writes ordinary memory when it runs.
            BatchesAreVisible = "batches_are_visible",
            /// Pinned memory accessed through a texture, a surface or a tensor map is host-visible.
            ObjectsAreVisible = "objects_are_visible",
            /// A copy that does not wait when its operands are on devices may have a managed
            /// operand.
            ManagedCopiesAreVisible = "managed_copies_are_visible",
            /// A second address of host memory makes kernels visible, whichever call returns it.
            OtherAddressIsVisible = "other_address_is_visible",
            /// Host functions and graphs are host-visible.
            HostFunctionsAreVisible = "host_functions_are_visible",
            /// The kernels of a communication library are host-visible, whatever their arguments
            /// are.
            CommunicationIsVisible = "communication_is_visible",
            /// Only memory that a communication library creates for itself is exempt from being an
            /// observer.
            OnlyLibrariesAreExempt = "only_libraries_are_exempt",
            /// Memory that a communication library receives from the program and registers is
            /// shared.
            RegisteredMemoryIsShared = "registered_memory_is_shared",
            /// Symmetric memory is shared, because kernels of the program reach it.
            SymmetricMemoryIsShared = "symmetric_memory_is_shared",
        }
    };
}
