//! Which memory serves a request, and when memory is released.

macro_rules! memory {
    ($join:ident $($others:tt)*) => {
        $join! { $($others)*
            /// Free blocks coalesce only if both are free for every request, or both for the same
            /// stream.
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
            /// A block is claimed from the program before anything else is done for its free.
            ClaimBeforeFree = "claim_before_free",
            /// A free that the driver does not permit leaves the block to the program.
            RefusedFreeKeepsBlock = "refused_free_keeps_block",
            /// A block is published only after the wait of its barrier is submitted.
            PublishAfterBarrier = "publish_after_barrier",
            /// A block that the core has taken for a request is recorded under the same lock.
            ArrivedIsRecorded = "arrived_is_recorded",
            /// Such a block keeps the event of its work from then on.
            ArrivedKeepsEvent = "arrived_keeps_event",
            /// An entry that the driver is about to take back is removed before the call.
            OutBeforeDriver = "out_before_driver",
            /// A call that the driver refuses removes exactly the entries it has made.
            RefusedEntryAlone = "refused_entry_alone",
            /// Memory that nothing uses is filled at once, and not on the stream of its request.
            UnusedIsFilledAtOnce = "unused_is_filled_at_once",
            /// The stream of a request waits for that fill.
            StreamWaitsForFill = "stream_waits_for_fill",
            /// A stream-ordered request does not wait for its fill.
            FillOutlastsRequest = "fill_outlasts_request",
            /// Memory of the driver is freed after the library's fill of it.
            FreeFollowsFill = "free_follows_fill",
            /// Memory that was filled on its stream is ordered after that fill once it is freed.
            FillIsAwaited = "fill_is_awaited",
            /// A stream-ordered free does not wait for the check of its red zone.
            ZonesAreCopied = "zones_are_copied",
            /// Only memory that was not used since the epoch is released as idle.
            IdleSinceMark = "idle_since_mark",
            /// Idle memory is released once the barriers of its frees are complete.
            IdleAfterBarrier = "idle_after_barrier",
            /// No thread of the library is in the driver when the process ends.
            ScavengerStopsAtExit = "scavenger_stops_at_exit",
            /// Memory is unmapped only after the newest barrier is complete.
            UnmapAfterBarrier = "unmap_after_barrier",
            /// Segments are released in stream order, not by a free that waits for all work.
            ReleaseInStreamOrder = "release_in_stream_order",
            /// Memory released in stream order returns to the device when that stream is
            /// synchronized.
            ReleaseSynchronizes = "release_synchronizes",
            /// The synchronizing thread does not wait for segments released meanwhile.
            CollectTakesTurns = "collect_takes_turns",
            /// A release that waits for a barrier delays none that waits for nothing.
            ReleasesWaitApart = "releases_wait_apart",
            /// The streams for released memory exist before a real free holds their context.
            ReleaseStreamsAreReady = "release_streams_are_ready",
            /// A request that goes on beside a real free does not ask the driver for a segment.
            GrowthAvoidsRealFree = "growth_avoids_real_free",
            /// A thread that waits for work does not keep others from mapping memory.
            UnmapWaitsUnlocked = "unmap_waits_unlocked",
            /// Only frees that wait on the plain driver release retired segments.
            OnlyWaitingFreesRelease = "only_waiting_frees_release",
            /// A real free is announced in the context of its memory, whichever is current.
            OwnersFreeIsAnnounced = "owners_free_is_announced",
            /// Memory that no work has touched is freed without a wait.
            UntouchedGoesAtOnce = "untouched_goes_at_once",
            /// A request finds the memory that a pass of the scavenger could not release.
            LeftIsReleased = "left_is_released",
            /// A block of a context that has ended empties no slot of another context.
            OwnSlotsAreVacated = "own_slots_are_vacated",
            /// A host function releases no memory, which the driver would refuse.
            HostFunctionReleasesNothing = "host_function_releases_nothing",
            /// Memory is in flight while the stream that has freed it is synchronized.
            CollectedIsInFlight = "collected_is_in_flight",
            /// A request that makes room on every device waits for memory in flight to each.
            RoomElsewhereIsAwaited = "room_elsewhere_is_awaited",
            /// The memory of a context is in flight while its end is recorded.
            EndedIsInFlight = "ended_is_in_flight",
            /// Pinned memory that leaves may be another allocation by the time of a free.
            LeavingMayBeAnothers = "leaving_may_be_anothers",
            /// A request waits for a pass that offers again what an earlier one has left.
            LeftIsInFlight = "left_is_in_flight",
            /// Segments are released after the events that their blocks wait for.
            ReleaseAfterEvents = "release_after_events",
            /// A request that must not wait moves only memory whose frees it has found over.
            MovesOnlyMemoryOfOverFrees = "moves_only_memory_of_over_frees",
            /// A request that would proceed in the driver waits for no free that has not returned.
            OnlyReturnedFreesAreAwaited = "only_returned_frees_are_awaited",
            /// In mode `relaxed`, calls that report or request memory wait for plain frees of other
            /// threads only for a limited time.
            OthersPlainFreesForAWhile = "others_plain_frees_for_a_while",
            /// In mode `relaxed`, a thread ends after the work that its plain frees wait for.
            ThreadOutlivesPlainFrees = "thread_outlives_plain_frees",
            /// Cached memory is released for a request even if several contexts have submitted.
            KeptIsReleasedInAnyContext = "kept_is_released_in_any_context",
            /// The user's peer processes are asked for memory before a request fails.
            PeersAreAsked = "peers_are_asked",
            /// A request that lacks something other than device memory fails without a reclaim
            /// request.
            OtherShortagesFail = "other_shortages_fail",
            /// No reclaim request is sent once the process ends, since nothing waits then.
            NoReclaimAtExit = "no_reclaim_at_exit",
            /// Requests that wait for memory get it in the order in which they began to wait.
            WaitersQueue = "waiters_queue",
            /// Each GPU has its own queue, whichever other GPUs a process waits for.
            EachGpuHasAFirst = "each_gpu_has_a_first",
            /// A request waits for memory that is being released.
            ReleaseInProgressIsAwaited = "release_in_progress_is_awaited",
            /// The request waits as long as that takes if in the driver it would block for as long
            /// as a free waits.
            BlockedRequestHasNoBound = "blocked_request_has_no_bound",
            /// A request that finds no memory waits for a thread that makes the memory of ended
            /// graphs ordinary.
            ReapInProgressIsAwaited = "reap_in_progress_is_awaited",
            /// Requests of other threads are served while a miss waits.
            WaitingMissBlocksNobody = "waiting_miss_blocks_nobody",
            /// The request is retried as long as some memory has been released since.
            ReleasedMemoryIsRetried = "released_memory_is_retried",
            /// An allocation in a context with a sticky error asks the driver.
            StickyErrorRefuses = "sticky_error_refuses",
            /// Memory counts against the limit before the driver is asked for it.
            LimitClaimsFirst = "limit_claims_first",
            /// A call is retried only if the table of functions allows it.
            RetryAsListed = "retry_as_listed",
            /// A call that may take memory of another device than the current one gets room on
            /// every device.
            RoomOnEveryDevice = "room_on_every_device",
            /// A call that may have been captured is not retried.
            RetryNotInCapture = "retry_not_in_capture",
            /// A captured call that left its capture unchanged is retried.
            UnchangedCaptureRetries = "unchanged_capture_retries",
            /// A retry receives its in-out arguments as the program wrote them.
            RetryRestoresSizes = "retry_restores_sizes",
            /// A request waits to the end only for frees of its own context.
            OnlyOwnContextStandsStill = "only_own_context_stands_still",
            /// A default pool that the program works with is left to the driver.
            AsyncNeedsDefaultPool = "async_needs_default_pool",
            /// The driver serves the default pool in contexts that the program creates.
            PoolOutlivesContext = "pool_outlives_context",
            /// Memory served in place of the default pool counts in the pool's attributes.
            PoolNumbersAreOurs = "pool_numbers_are_ours",
            /// A query for the free memory includes the frees that in the driver it would have
            /// waited for.
            FreeMemoryQueryWaits = "free_memory_query_waits",
            /// Pinned and pitched memory is kept although a request has failed.
            FailureKeepsCaching = "failure_keeps_caching",
            /// A stream-ordered request takes memory of the device of its stream.
            StreamNamesDevice = "stream_names_device",
            /// A free of memory that it cannot end waits for nothing: the driver refuses it.
            WrongEndWaitsForNothing = "wrong_end_waits_for_nothing",
            /// A call that lacks memory is repeated after the barriers of earlier frees.
            RefusedCallWaitsForFrees = "refused_call_waits_for_frees",
            /// A pool is trimmed after the barriers of earlier frees.
            TrimAfterFrees = "trim_after_frees",
            /// When memory is short, memory that work still uses stays for requests that can be
            /// ordered after it.
            WaitingMemoryStays = "waiting_memory_stays",
            /// A stream-ordered request that finds nothing else takes memory that other streams
            /// still use.
            StreamTakesMemoryOfOthers = "stream_takes_memory_of_others",
            /// If that memory lies in pieces, the request waits for the streams.
            PiecesAreAwaited = "pieces_are_awaited",
            /// A stream that is given memory others still use waits for them.
            MemoryOfOthersIsAwaited = "memory_of_others_is_awaited",
            /// Stream-ordered memory freed by `cuMemFree` is free at once when memory is short.
            AssumedOverWhereShort = "assumed_over_where_short",
            /// Such memory still waits for whatever its stream had to wait for when it got the
            /// block.
            AssumedWaitsForBefore = "assumed_waits_for_before",
        }
    };
}
