//! Captures, their graphs, and the memory of both.

macro_rules! captures {
    ($join:ident $($others:tt)*) => {
        $join! { $($others)*
            /// No notice of a graph is waited for while a real free may hold the context.
            FenceAvoidsRealFree = "fence_avoids_real_free",
            /// A freed block of a private pool is not reused before the pool ends, unless the
            /// capture allows it.
            PrivateWaitsForPool = "private_waits_for_pool",
            /// A capture adopts only memory that has not been used since it began.
            AdoptOnlyIdle = "adopt_only_idle",
            /// Memory freed since the capture began is adopted only if no graph node references it.
            AdoptUnreferenced = "adopt_unreferenced",
            /// A request that is polled for a capture, which may end meanwhile, gets no memory that
            /// the capture has used.
            PollTakesUnusedMemory = "poll_takes_unused_memory",
            /// A request of a capture that waits, or asks the driver, does not hold the capture's
            /// lock, which other threads need.
            CaptureIsNotLockedInMiss = "capture_is_not_locked_in_miss",
            /// A block freed in a capture, ordered after work outside of it, is not reused in that
            /// capture.
            OutsideFreeWaitsForPool = "outside_free_waits_for_pool",
            /// A thread that submits work into a capture takes part in it.
            SubmittingThreadTakesPart = "submitting_thread_takes_part",
            /// Blocks that a participating thread has allocated since the capture began, and not
            /// freed, belong to the capture as well.
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
            /// An address at which a block begins, or memory of the driver itself, is no reference
            /// to the block that ends there.
            BeginIsNoEnd = "begin_is_no_end",
            /// A block that a node references stays with the graph when its capture has ended.
            ReferencedStaysWithGraph = "referenced_stays_with_graph",
            /// A referenced block that the program still holds leaves with the capture, if the
            /// driver's own free would take it away from the graph.
            HeldLeavesWithCapture = "held_leaves_with_capture",
            /// The memory of a capture belongs to its graph as long as the graph, or anything made
            /// from it, lives.
            PoolLivesWithGraph = "pool_lives_with_graph",
            /// The memory of an ended pool becomes free for every request only when an event
            /// recorded after its last work is complete.
            PoolEndsAfterEvent = "pool_ends_after_event",
            /// An ended pool also waits for the streams on which its blocks were freed.
            PoolEndsAfterNotedUses = "pool_ends_after_noted_uses",
            /// A pool ends at once if each of its frees had waited for all work.
            WaitedPoolEndsAtOnce = "waited_pool_ends_at_once",
            /// When memory is short, the library waits for the driver to report graphs that have
            /// just ended.
            GraphEndsAreAwaited = "graph_ends_are_awaited",
            /// Launched and never-launched graphs are reported in separate orders; wait for both.
            GraphEndsOfBothKinds = "graph_ends_of_both_kinds",
            /// The library waits for these reports again after frees that in the driver would wait
            /// for the graphs' launches.
            GraphEndsAfterFrees = "graph_ends_after_frees",
            /// A graph that is uploaded when it is instantiated finds memory.
            UploadMakesRoom = "upload_makes_room",
            /// While a capture runs, a free lets the driver wait and records no barrier.
            CaptureWaitsInDriver = "capture_waits_in_driver",
            /// A free on a stream that does not capture is tagged while others capture.
            CaptureLeavesTags = "capture_leaves_tags",
            /// A free in a capture leaves markers.
            CaptureFreeMarks = "capture_free_marks",
            /// A free on no stream leaves markers of every stream.
            CaptureFreeMarksEveryStream = "capture_free_marks_every_stream",
            /// A free on no stream also leaves markers of nodes that no stream follows any more.
            CaptureDroppedNodesMark = "capture_dropped_nodes_mark",
            /// A node with an early edge may still run when its successors are complete.
            CaptureLooseNodesMark = "capture_loose_nodes_mark",
            /// A request of no stream reuses a block when it is free for every stream of the
            /// capture.
            CaptureReuseForEveryStream = "capture_reuse_for_every_stream",
            /// A stream whose capture the driver refuses to begin does not capture.
            RefusedBeginCapturesNothing = "refused_begin_captures_nothing",
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
            /// A request looks at the graph of its capture before it chooses the pool: another one
            /// serves if the graph cannot be seen whole.
            PoolAfterLook = "pool_after_look",
            /// Nothing is reused in a capture that the library does not see whole.
            CaptureOpaqueWaits = "capture_opaque_waits",
            /// A stream whose green context is gone no longer captures.
            DetachedIsOver = "detached_is_over",
            /// A stream that the driver fails to destroy continues to capture.
            RefusedStreamCaptures = "refused_stream_captures",
        }
    };
}
