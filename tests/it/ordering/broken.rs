//! Every safety rule is needed: with it switched off, a real process goes wrong. Each of these
//! hazards passes while the rule holds, in the same mode (`hazards.rs`).

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Run, tier};

use crate::ordering::hazards::{Hazard, PROGRAM, PROMISED, hazards};

/// The rule, the hazard that shows it, and the mode. Hazards in which two threads must meet get
/// several tries.
const TABLE: &[(Rule, &str, &str)] = &[
    (Rule::MergeSameTagOnly, "merged_neighbours", "ordered"),
    (Rule::ContextTakesUntaggedOnly, "freed_on_a_stream_then_taken_by_malloc", "ordered"),
    (Rule::StreamTakesOwnTagOnly, "reuse_on_a_stream_that_is_not_in_order", "ordered"),
    (Rule::SplitInheritsTag, "remainder_of_a_split", "ordered"),
    (Rule::LaterEventStays, "async_block_of_two_frees_freed_plainly", "ordered"),
    (Rule::ExportedNotReused, "exported_block_is_not_reused", "ordered"),
    (Rule::ExportedNotReused, "block_behind_a_dma_buf_is_not_reused", "ordered"),
    (Rule::WholeAfterExport, "large_blocks_after_an_export", "ordered"),
    (Rule::InsideHandleIsOurs, "export_of_neighbours", "ordered"),
    (Rule::ReleaseOnlyFreeSegments, "small_blocks_then_a_large_one", "ordered"),
    (Rule::BarrierOnFree, "free_orders_streams", "ordered"),
    (Rule::OtherStreamFlushes, "reuse_on_another_stream", "ordered"),
    (Rule::StreamsWaitForThemselves, "reuse_on_another_stream", "ordered"),
    (Rule::StreamsWaitForTheNewest, "a_block_changes_hands", "ordered"),
    (Rule::TagsBeforeNumber, "wait_and_tag_beside_a_free", "ordered"),
    (Rule::DeferralIsPerContext, "idle_context_frees_beside_one_that_owes", "ordered"),
    (Rule::OnlySubmitterForgets, "idle_context_frees_beside_streams_of_another", "ordered"),
    (Rule::EndedStreamFlushes, "stream_with_the_handle_of_another", "ordered"),
    (Rule::ProgrammaticLaunchFlushes, "reuse_by_a_programmatic_launch", "ordered"),
    (Rule::CaptureFlushesFirst, "free_orders_every_kind_of_work", "ordered"),
    (Rule::ReleasedReferenceFlushes, "another_stream_beside_a_detach", "ordered"),
    (Rule::ForkedChildFlushesNothing, "fork_while_a_barrier_is_made", "ordered"),
    (Rule::LibraryStreamFlushes, "reuse_on_a_new_stream", "ordered,fill:zero"),
    (Rule::ElisionNeedsEnded, "frees_of_several_threads", "ordered"),
    (Rule::CoverNeedsSeen, "tags_made_during_a_barrier", "ordered"),
    (Rule::ShareNeedsLaterBarrier, "frees_of_several_threads", "ordered"),
    (Rule::VisibleWorkWaits, "pinned_write", "ordered"),
    (Rule::VisibleWorkMarksBothSides, "a_flag_is_raised_before_the_launch_returns", "ordered"),
    (Rule::ExclusiveContextOnly, "foreign_stream_in_reused_memory", "ordered"),
    (Rule::CountedBeforeWatched, "first_work_beside_a_second_context", "ordered"),
    (Rule::PromisedContextsApart, "halves_and_an_export", PROMISED),
    (Rule::PromisedStreamsAreAsked, "freed_on_a_peers_stream", PROMISED),
    (Rule::FreesInEachContext, "teardown_behind_frees_in_two_contexts", PROMISED),
    (Rule::CaptureWaitsInDriver, "free_during_thread_local_capture", "ordered"),
    (Rule::PoolEndsAfterNotedUses, "block_in_use_of_a_graph_that_ends_beside_a_capture", "ordered"),
    (Rule::StrictWaits, "pinned_in_copied_data", "strict"),
    (Rule::AsyncTagWaitsElsewhere, "crossed_frees", "ordered"),
    (Rule::EventsInOrderByStream, "frees_on_two_streams_in_turn", "ordered"),
    (Rule::SharedEventNeedsQuiet, "every_kind_of_work_between_two_frees", "ordered"),
    (Rule::FreeJoinsLegacy, "wait_for_a_stream_behind_a_free", "ordered"),
    (Rule::PendingFreeJoinsLegacy, "wait_for_a_stream_behind_a_free_beside_a_capture", "ordered"),
    (Rule::FreeJoinsWithoutEvent, "wait_for_a_stream_behind_a_free_without_an_event", "ordered"),
    (Rule::FreeJoinsContext, "wait_for_a_stream_of_a_waiting_context", "ordered"),
    (Rule::FreeJoinsContext, "wait_for_a_stream_of_a_waiting_green_context", "ordered"),
    (Rule::FreeOfStreamBlockIsPending, "spin_and_free_async_pointer", "ordered"),
    (Rule::RecordedStreamsArePending, "block_recorded_on_another_stream", "ordered"),
    (Rule::VisibleIsSticky, "pinned_argument_then_copied_data", "ordered"),
    (Rule::ArgumentsAreScanned, "pinned_in_packed_arguments", "ordered"),
    (Rule::UnknownArgumentsStay, "pinned_argument_set_before_the_launch", "ordered"),
    (Rule::UnknownArgumentsStay, "pinned_argument_of_several_launches", "ordered"),
    (Rule::NodesAreScanned, "pinned_argument_of_a_node", "ordered"),
    (Rule::NodesAreScanned, "pinned_argument_of_a_node_of_any_kind", "ordered"),
    (Rule::NodesAreScanned, "pinned_argument_set_in_a_graph", "ordered"),
    (Rule::NodesAreScanned, "pinned_argument_set_in_a_graph_of_any_kind", "ordered"),
    (Rule::NodesAreScanned, "pinned_argument_set_in_an_executable", "ordered"),
    (Rule::NodesAreScanned, "pinned_argument_set_in_an_executable_of_any_kind", "ordered"),
    (Rule::PinnedOperandsAreVisible, "refill_pinned", "ordered"),
    (Rule::PinnedOperandsAreVisible, "flag_lowered_behind_a_wait_for_it", "ordered"),
    (Rule::ArgumentsAtAnyByte, "pinned_in_a_packed_struct", "ordered"),
    (Rule::RangesHaveMargins, "pinned_by_its_end", "ordered"),
    (Rule::OffsetsCount, "copy_2d_to_pinned_at_an_offset", "ordered"),
    (Rule::BatchesAreVisible, "batch_to_pageable", "ordered"),
    (Rule::ManagedCopiesAreVisible, "copy_to_managed", "ordered"),
    (Rule::ManagedCopiesAreVisible, "copy_of_an_array_to_managed", "ordered"),
    (Rule::ManagedCopiesAreVisible, "copy_to_virtual_memory_of_the_host", "ordered"),
    (Rule::OtherAddressIsVisible, "write_by_another_address", "ordered"),
    (Rule::ObjectsAreVisible, "pinned_behind_a_texture", "ordered"),
    (Rule::LessAccessWaits, "access_taken_away", "ordered"),
    (Rule::LessAccessWaits, "pool_access_taken_away", "ordered,across_contexts:barrier"),
    (Rule::OwnWorkCounts, "filled_block_changes_hands", "ordered,fill:zero"),
    (Rule::StreamWaitsForFill, "spin_before_a_context_that_waits", "ordered,fill:zero"),
    (Rule::FillOutlastsRequest, "spin_before_a_context_that_waits", "ordered,fill:zero"),
    (Rule::FreeFollowsFill, "pool_memory_never_used_freed_plainly", "ordered,fill:zero"),
    (Rule::FillIsAwaited, "async_block_never_used_freed_plainly", "ordered,fill:zero"),
    (Rule::GreenWaitIsPartial, "free_behind_a_wait_for_a_green_context", "ordered"),
    (Rule::GreenIsEnteredByPrimary, "room_behind_a_green_context", "ordered"),
    (Rule::GreenHoldsPrimary, "memory_where_a_green_context_was", "ordered"),
    (Rule::TrimAfterFrees, "trim_behind_a_free", "ordered"),
    (Rule::RefusedCallWaitsForFrees, "pool_without_dependencies_behind_a_free", "ordered"),
    (Rule::OnlyReturnedFreesAreAwaited, "pool_memory_beside_a_free_that_waits", "ordered"),
    (Rule::OthersPlainFreesForAWhile, "memory_info_beside_a_free_that_waits", "relaxed"),
    (Rule::ThreadOutlivesPlainFrees, "memory_info_beside_the_last_call_of_a_thread", "relaxed"),
    (Rule::BlockedRequestHasNoBound, "request_beside_a_long_free", "ordered"),
    (Rule::BlockedRequestHasNoBound, "array_beside_memory_on_its_way", "ordered"),
    (Rule::BlockedRequestHasNoBound, "another_stream_takes_six_pieces", "ordered"),
    (Rule::GrowthAvoidsRealFree, "pool_memory_beside_a_free_and_a_capture", "ordered"),
    (Rule::OwnersFreeIsAnnounced, "memory_beside_an_end_from_another_context", "ordered"),
    (Rule::ReleaseStreamsAreReady, "physical_memory_beside_a_free_and_a_capture", "ordered"),
    (Rule::ReleasesWaitApart, "physical_memory_beside_a_long_release", "ordered"),
    (Rule::UnmapWaitsUnlocked, "stream_memory_beside_a_long_mapping", EXPANDABLE),
    (Rule::OnlyWaitingFreesRelease, "free_of_stream_ordered_memory_behind_an_export", "ordered"),
    (
        Rule::UntouchedGoesAtOnce,
        "spin_and_pitched_memory_beyond_a_limit",
        "ordered,gpu_memory_limit_mb:100",
    ),
    (Rule::LeftIsReleased, "idle_memory_whose_release_is_refused", "ordered"),
    (Rule::CollectedIsInFlight, "requests_beside_memory_that_is_collected", "ordered"),
    (Rule::RoomElsewhereIsAwaited, "pool_memory_beside_a_release_on_another_device", "ordered"),
    (Rule::EndedIsInFlight, "room_where_a_context_ends", "ordered,expandable_segments:true"),
    (
        Rule::MovesOnlyMemoryOfOverFrees,
        "stream_memory_beside_pieces_freed_meanwhile",
        "ordered,expandable_segments:true",
    ),
    (Rule::OwnSlotsAreVacated, "thread_ends_beside_the_end_of_its_context", "ordered"),
    (
        Rule::HostFunctionReleasesNothing,
        "physical_memory_in_a_host_function",
        "ordered,gpu_memory_limit_mb:50",
    ),
    (Rule::LeavingMayBeAnothers, "pinned_memory_where_another_leaves", "ordered,host_cache_mb:3"),
    (Rule::FenceAvoidsRealFree, "physical_memory_behind_a_graph_beside_a_free", "ordered"),
    (Rule::LateFreesWait, "query_behind_a_free_in_the_last_destructor", "ordered"),
    (Rule::OpenedStaysOpen, "pool_opened_beside_access_that_ends", "ordered"),
    (Rule::ThreadOutlivesItsBarriers, "query_beside_the_last_call_of_a_thread", "ordered"),
    (Rule::OverlappedRangeIsGone, "copy_to_a_range_around_an_ended_one", "ordered"),
    (Rule::RefusedEndHidesNothing, "copy_beside_a_refused_end", "ordered"),
    (Rule::WaitingFreeHidesNone, "query_behind_a_free_beside_another", "ordered"),
    (
        Rule::ForgottenStaysForgotten,
        "pinned_argument_of_a_kernel_with_a_handle_of_another",
        "ordered",
    ),
    (Rule::LeftIsInFlight, "idle_memory_that_is_offered_again", "ordered"),
    (Rule::WaitingMissBlocksNobody, "stream_memory_beside_a_request_that_stands_still", "ordered"),
    (Rule::DetachedIsOver, "capture_of_a_green_context", "ordered"),
    (Rule::CallbackIsAsked, "calls_in_callback", "ordered"),
    (Rule::PoolNumbersAreOurs, "pool_numbers", "ordered"),
    (Rule::HostFunctionsAreVisible, "launched_host_function", "ordered"),
    (Rule::EventWaitsCount, "wait_for_another_context", "ordered"),
    (Rule::TeardownWaits, "unmap", "ordered"),
    (Rule::PinnedFreeWaits, "look_behind_the_end_of_pinned_memory", "ordered"),
    (Rule::PinnedIsZeroed, "pinned_memory_again", "ordered"),
    (Rule::KeptIsUnknown, "questions_about_freed_pinned_memory", "ordered"),
    (Rule::ReferenceWaitsForNone, "spin_and_one_reference_less", "ordered"),
    (Rule::ReferenceHidesNothing, "beside_references_that_are_given_up", "ordered"),
    (Rule::ServedIsInNoSegment, "memory_where_a_context_was", "ordered"),
    (Rule::OpensOutliveReference, "opens_beside_references", "ordered"),
    (Rule::ReferenceHidesNothing, "beside_users_that_detach_slowly", "ordered"),
    (Rule::KeptBesideReferences, "pinned_memory_freed_beside_references", "ordered"),
    (Rule::BarrierOutlastsReference, "unmap_beside_references", "ordered"),
    (Rule::ReferencesAreCounted, "room_beside_a_slow_detach", "ordered"),
    (Rule::ReferencesAreJudgedInTurn, "last_references_beside_a_kernel", "ordered"),
    (Rule::ReferencesAreCounted, "room_beside_a_slow_release", "ordered"),
    (Rule::EndWaitsWhileOpen, "unmap_beside_the_end_of_a_context", "ordered"),
    (Rule::EndWaitsWhileOpen, "first_work_beside_the_end_of_a_context", "ordered"),
    (Rule::EndWaitsWhileOpen, "room_beside_the_end_of_a_context", "ordered"),
    (Rule::PrimaryIsNotDestroyed, "spin_and_destroy_the_primary_context", "ordered"),
    (Rule::ObserverWaits, "peer_copy_into_reused_memory", "ordered"),
    (Rule::QueryAsksAgain, "elapsed_time", "ordered"),
    (Rule::QueryWaitsForOwnFrees, "query_behind_another_threads_frees", "ordered"),
    (Rule::ElidedFreeShares, "event_query_behind_a_skipped_barrier", "ordered"),
    (Rule::PendingBarrierIsOfItsFree, "spin_and_destroy_texture", "ordered"),
    (Rule::EventNotReused, "spin_and_large_malloc_behind_async_free", "ordered"),
    (Rule::ClaimBeforeFree, "one_block_freed_twice_at_once", "ordered"),
    (Rule::PublishAfterBarrier, "a_block_changes_hands", "ordered"),
    (Rule::RefusedBarrierWaitsInDriver, "no_event_left", "ordered"),
    (Rule::RefusedFreeKeepsBlock, "free_in_callback", "ordered"),
    (Rule::CaptureExcludesBarriers, "captures_begin_during_frees", "ordered"),
    (Rule::BarrierAvoidsRealFree, "capture_beside_frees_of_two_contexts", "relaxed"),
    (Rule::StickyErrorRefuses, "free_after_known_fault", "ordered"),
    (Rule::SharedFreeIsInProgress, "two_threads_share_a_barrier", "ordered"),
    (Rule::ReleaseInStreamOrder, "persistent_kernel_and_malloc", "ordered"),
    (Rule::ReleaseAfterEvents, "room_is_made_behind_tags", "ordered"),
    (Rule::ReleaseSynchronizes, "room_comes_back_from_behind_tags", "ordered"),
    (Rule::CollectTakesTurns, "room_is_collected_while_more_goes_back", "ordered"),
    (Rule::UnmapOnlyFree, "memory_moves_past_a_stream", EXPANDABLE),
    (Rule::UnmapAfterBarrier, "memory_moves_behind_a_kernel", EXPANDABLE),
    (Rule::RetryAsListed, "calls_that_may_not_be_repeated", "ordered"),
    (Rule::RoomOnEveryDevice, "memory_that_another_device_has_cached", "ordered"),
    (Rule::RetryNotInCapture, "failed_call_during_capture", "ordered"),
    (Rule::UnchangedCaptureRetries, "first_use_in_a_capture", "ordered"),
    (Rule::RefusedChangesNothing, "refused_calls", "ordered"),
    (Rule::RefusedChangesNothing, "calls_about_other_pools", "ordered"),
    (Rule::UploadMakesRoom, "upload_at_instantiation", "ordered"),
    (Rule::OnlySupportedQueries, "errors_in_the_log", "ordered"),
    (Rule::OnlySupportedQueries, "errors_of_a_first_kernel", "ordered"),
    (Rule::RetryRestoresSizes, "jit_log_sizes", "ordered"),
    (Rule::ContextEndForgets, "foreign_memory_after_a_contexts_end", "ordered"),
    (Rule::UnreferencedIsFree, "memory_of_a_relaxed_capture", "ordered"),
    (Rule::HeldLeavesWithCapture, "memory_that_a_node_names", "ordered"),
    (Rule::HeldLeavesWithCapture, "memory_of_an_abandoned_capture", "relaxed"),
    (Rule::AsyncNeedsDefaultPool, "pool_of_its_own", "ordered"),
    (Rule::RefusedWaitStaysDeferred, "event_in_a_host_function_behind_a_free", "ordered"),
    (Rule::OnlyOwnContextStandsStill, "request_beside_a_free_of_another_context", "ordered"),
    (Rule::WrongEndWaitsForNothing, "wrong_ends_beside_a_kernel", "ordered"),
    (Rule::PoolOutlivesContext, "pool_memory_after_its_context", "ordered"),
    (Rule::OutBeforeDriver, "pinned_memory_changes_hands", "ordered,host_cache_mb:0"),
    (Rule::RefusedEntryAlone, "one_buffer_registered_by_two_threads", "ordered"),
    (Rule::SecondInitForgetsNothing, "second_init", "ordered"),
    (Rule::EndsOnlyWhatExisted, "primary_context_of_several_threads", "ordered"),
    (Rule::KernelsEndWithContext, "kernel_of_a_later_context", "ordered"),
    (Rule::PendingBarrierOutlivesThread, "queries_behind_a_thread_that_has_ended", "ordered"),
    (Rule::OthersFreesForAWhile, "queries_behind_a_thread_that_lives", "ordered"),
    (Rule::EndedStreamIsForgotten, "reuse_in_stream_order_under_the_handle_of_another", "ordered"),
    (Rule::StreamExists, "free_on_a_stream_that_is_gone", "ordered"),
    (Rule::DriversWaitIsWaitedAhead, "memory_beside_the_end_of_an_array", "ordered"),
    (Rule::DriversWaitIsWaitedAhead, "memory_beside_the_end_of_managed_memory", "strict"),
    (Rule::DriversWaitIsWaitedAhead, "memory_beside_the_end_of_a_registration", "relaxed"),
    (
        Rule::OwnersWorkIsWaitedFor,
        "end_of_managed_memory_beside_a_kernel_of_another_context",
        "ordered",
    ),
    (Rule::TeardownIsAnnounced, "capture_beside_the_end_of_an_array", "ordered"),
    (Rule::CaptureLeavesTags, "stream_frees_beside_a_capture", "ordered"),
    (Rule::RefusedStreamCaptures, "capturing_stream_that_is_not_destroyed", "ordered"),
    (Rule::AssumedOverWhereShort, "async_block_freed_while_another_stream_is_busy", "ordered"),
    (Rule::AssumedWaitsForBefore, "async_block_never_used_freed_plainly", "ordered"),
    (Rule::WaitingMemoryStays, "another_stream_is_served_at_once", "ordered"),
    (Rule::StreamTakesMemoryOfOthers, "another_stream_is_served_at_once", "ordered"),
    (Rule::MemoryOfOthersIsAwaited, "another_stream_takes_two_neighbours", "ordered"),
    (Rule::PiecesAreAwaited, "another_stream_takes_six_pieces", "ordered"),
    (Rule::CaptureIsNotLockedInMiss, "request_in_a_capture_that_another_ends", "ordered"),
    (Rule::ReleasedMemoryIsRetried, "relaxed_capture_and_anothers_cache", "ordered"),
];

const EXPANDABLE: &str = "ordered,expandable_segments:true";
/// Rules that no hazard shows: the driver has no counterpart, or the effect appears only at the end
/// or beside other libraries. `communication.rs`, `limits.rs`, `idle.rs`, `snapshots.rs`,
/// `graphs.rs`, `judge.rs`, `observers.rs`, `pinned_again.rs` and `processes.rs` show them.
/// `core/order/tests/reuse` covers reuse in captures, `core/tests/broken.rs` the reuse conditions
/// of barriers.
const NO_HAZARDS: &[Rule] = &[
    Rule::PrivateWaitsForPool,
    Rule::AdoptOnlyIdle,
    Rule::PollTakesUnusedMemory,
    Rule::AdoptUnreferenced,
    Rule::OutsideFreeWaitsForPool,
    Rule::PoolLivesWithGraph,
    Rule::SubmittingThreadTakesPart,
    Rule::AllocatedBlocksJoin,
    Rule::CaptureInEveryContext,
    Rule::ReferencedStaysWithGraph,
    Rule::BeginIsNoEnd,
    Rule::LeftEndsWithContext,
    Rule::ElsewhereOutlastsBarrier,
    Rule::StreamElsewhereTags,
    Rule::ZonesAreCopied,
    Rule::FreeMemoryQueryWaits,
    Rule::PrivateByBlock,
    Rule::UnreferencedLeavesPool,
    Rule::PoolEndsAfterEvent,
    Rule::WaitedPoolEndsAtOnce,
    Rule::GraphEndsAreAwaited,
    Rule::GraphEndsOfBothKinds,
    Rule::GraphEndsAfterFrees,
    Rule::UnusedIsFilledAtOnce,
    Rule::CaptureFreeMarks,
    Rule::CaptureFreeMarksEveryStream,
    Rule::CaptureDroppedNodesMark,
    Rule::CaptureLooseNodesMark,
    Rule::CaptureReuseForEveryStream,
    Rule::CaptureEarlyIsNotComplete,
    Rule::CaptureReuseNotEarly,
    Rule::CaptureReuseIsMarked,
    Rule::CaptureEdgesAreAdded,
    Rule::CaptureReachAdvances,
    Rule::PoolAfterLook,
    Rule::CaptureOpaqueWaits,
    Rule::LimitClaimsFirst,
    Rule::StreamNamesDevice,
    Rule::FailureKeepsCaching,
    Rule::RefusedBeginCapturesNothing,
    Rule::IdleSinceMark,
    Rule::IdleAfterBarrier,
    Rule::PeersAreAsked,
    Rule::WaitersQueue,
    Rule::EachGpuHasAFirst,
    Rule::OtherShortagesFail,
    Rule::NoReclaimAtExit,
    Rule::KeptWhileOpen,
    Rule::KeptIsReleasedInAnyContext,
    Rule::ContextEndStopsScavenger,
    Rule::ScavengerStopsAtExit,
    Rule::EndWaits,
    Rule::OthersEndForAWhile,
    Rule::ArrivedIsRecorded,
    Rule::ArrivedKeepsEvent,
    Rule::ReleaseInProgressIsAwaited,
    Rule::ReapInProgressIsAwaited,
    Rule::CommunicationIsVisible,
    Rule::UntrackedSubmissionFlushes,
    Rule::OwnerForgetsStreams,
    Rule::NothingBegunForgetsStreams,
    Rule::OnlyLibrariesAreExempt,
    Rule::OnlyFrameworksPassTables,
    Rule::OnlyTablesArePassed,
    Rule::NewestFreeFirst,
    Rule::BarrierMark,
    Rule::RegisteredMemoryIsShared,
    Rule::SymmetricMemoryIsShared,
];

/// Rules that matter only where the second one does not help: it is broken too.
const HIDDEN_BY: &[(Rule, Rule)] = &[
    (Rule::BarrierAvoidsRealFree, Rule::DriversWaitIsWaitedAhead),
    (Rule::TeardownIsAnnounced, Rule::DriversWaitIsWaitedAhead),
    (Rule::DriversWaitIsWaitedAhead, Rule::GrowthAvoidsRealFree),
    (Rule::PendingBarrierOutlivesThread, Rule::ThreadOutlivesItsBarriers),
    (Rule::QueryWaitsForOwnFrees, Rule::ThreadOutlivesItsBarriers),
];

const TRIES_MAX: usize = 40;
/// Without some rules a program hangs.
const HANGS_S: u32 = 15;
/// Many rows wait until a deadlock is detected, and use no processor meanwhile.
const WORKERS: usize = 4;

#[test]
fn each_rule_is_in_the_table() {
    for rule in Rule::ALL.iter().filter(|rule| !NO_HAZARDS.contains(rule)) {
        assert!(TABLE.iter().any(|(known, ..)| known == rule), "{} has no hazard", rule.name());
    }
}

#[test]
fn each_rule_is_needed() {
    assert!(has_switches(), "the library was built without `break-rules`: run `make test`");
    let hazards = hazards();
    // The fast tier takes a third of the rules, the long one all.
    let step = tier::count(3, 1);
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(String::new()));
    let work = || {
        while let Some((rule, name, mode)) = TABLE.get(step * next.fetch_add(1, Ordering::Relaxed))
        {
            let hazard = hazards.iter().find(|hazard| hazard.name == *name).expect(name);
            let caught = |try_number| Some((try_number, broken(hazard, *rule, mode)?));
            match (1..=TRIES_MAX).find_map(caught) {
                Some((tries, how)) => println!("{}, try {tries}: {how}", rule.name()),
                None => {
                    let mut failures = failures.lock().expect("not poisoned");
                    writeln!(failures, "{} is not caught by {name}", rule.name()).unwrap();
                }
            }
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| _ = scope.spawn(work)));
    let failures = failures.into_inner().expect("not poisoned");
    assert!(failures.is_empty(), "{failures}");
}

/// Describes what goes wrong without the rule.
fn broken(hazard: &Hazard, rule: Rule, mode: &str) -> Option<String> {
    let hiding = HIDDEN_BY.iter().find(|(hidden, _)| *hidden == rule);
    let rules = [rule].into_iter().chain(hiding.map(|(_, hiding)| *hiding)).map(Rule::name);
    let ran = hazard
        .run()
        .env("SIM_DEADLOCK_MS", "500")
        .env("CACHEALLOC_BREAK", rules.collect::<Vec<_>>().join(","))
        .conf(&format!("free_mode:{mode}"))
        .hangs_within(HANGS_S)
        .output();
    hazard.wrong(&ran, Some(&hazard.natively()))
}

fn has_switches() -> bool {
    let run = Run::program(PROGRAM).arg("pinned_write").env("CACHEALLOC_BREAK", "no_such_rule");
    run.output().stderr.contains("unknown rule")
}
