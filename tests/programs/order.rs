//! Wrappers for ordering objects: streams, events, barriers, captures, graphs.

use super::driver::{Driver, Event, Outcome, Stream, check};

impl Driver {
    /// Creates a stream that is in order with the legacy stream.
    pub fn blocking_stream(&self) -> Outcome<Stream> {
        self.create_stream(0)
    }

    /// Creates a stream that is in order only with itself.
    pub fn stream(&self) -> Outcome<Stream> {
        self.create_stream(1)
    }

    fn create_stream(&self, flags: u32) -> Outcome<Stream> {
        let mut stream = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuStreamCreate)(&mut stream, flags) })?;
        Ok(stream)
    }

    pub fn destroy_stream(&self, stream: Stream) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuStreamDestroy)(stream) })
    }

    pub fn stream_id(&self, stream: Stream) -> Outcome<u64> {
        let mut id = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuStreamGetId)(stream, &mut id) })?;
        Ok(id)
    }

    pub fn query_stream(&self, stream: Stream) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuStreamQuery)(stream) })
    }

    pub fn synchronize_stream(&self, stream: Stream) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuStreamSynchronize)(stream) })
    }

    pub fn event(&self) -> Outcome<Event> {
        let mut event = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuEventCreate)(&mut event, 0) })?;
        Ok(event)
    }

    pub fn destroy_event(&self, event: Event) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuEventDestroy)(event) })
    }

    pub fn record(&self, event: Event, stream: Stream) -> Outcome {
        // SAFETY: the function takes handles.
        check(unsafe { (self.functions.cuEventRecord)(event, stream) })
    }

    pub fn stream_waits(&self, stream: Stream, event: Event) -> Outcome {
        // SAFETY: the function takes handles.
        check(unsafe { (self.functions.cuStreamWaitEvent)(stream, event, 0) })
    }

    pub fn query_event(&self, event: Event) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuEventQuery)(event) })
    }

    pub fn synchronize_event(&self, event: Event) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuEventSynchronize)(event) })
    }

    pub fn elapsed_ms(&self, start: Event, end: Event) -> Outcome<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuEventElapsedTime)(&mut milliseconds, start, end) })?;
        Ok(milliseconds)
    }

    /// Orders all later work of the current context after all earlier work.
    pub fn barrier(&self, event: Event) -> Outcome {
        let context = self.context();
        // SAFETY: the function takes handles.
        check(unsafe { (self.functions.cuCtxRecordEvent)(context, event) })?;
        self.context_waits(event)
    }

    /// Orders all later work of the current context after the event.
    pub fn context_waits(&self, event: Event) -> Outcome {
        let context = self.context();
        // SAFETY: the function takes handles.
        check(unsafe { (self.functions.cuCtxWaitEvent)(context, event) })
    }

    pub fn begin_capture(&self, stream: Stream, mode: u32) -> Outcome {
        // SAFETY: the function takes a handle and a number.
        check(unsafe { (self.functions.cuStreamBeginCapture)(stream, mode) })
    }

    pub fn end_capture(&self, stream: Stream) -> Outcome<u64> {
        let mut graph = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuStreamEndCapture)(stream, &mut graph) })?;
        Ok(graph)
    }

    /// Returns 0 for none, 1 for active, 2 for invalidated.
    pub fn capture_status(&self, stream: Stream) -> Outcome<u32> {
        let mut status = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuStreamIsCapturing)(stream, &mut status) })?;
        Ok(status)
    }

    /// Exchanges this thread's capture mode, and returns the old one.
    pub fn exchange_capture_mode(&self, mode: u32) -> Outcome<u32> {
        let mut mode = mode;
        // SAFETY: a local that is read and written.
        check(unsafe { (self.functions.cuThreadExchangeStreamCaptureMode)(&mut mode) })?;
        Ok(mode)
    }

    pub fn instantiate(&self, graph: u64) -> Outcome<u64> {
        let mut executable = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuGraphInstantiateWithFlags)(&mut executable, graph, 0) })?;
        Ok(executable)
    }

    pub fn launch_graph(&self, executable: u64, stream: Stream) -> Outcome {
        // SAFETY: the function takes handles.
        check(unsafe { (self.functions.cuGraphLaunch)(executable, stream) })
    }

    pub fn destroy_graph(&self, graph: u64) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuGraphDestroy)(graph) })
    }

    pub fn destroy_executable(&self, executable: u64) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuGraphExecDestroy)(executable) })
    }

    pub fn graph_nodes_count(&self, graph: u64) -> Outcome<usize> {
        let mut count = 0;
        // SAFETY: a local for the count; null asks for nothing else.
        check(unsafe {
            (self.functions.cuGraphGetNodes)(graph, std::ptr::null_mut(), &mut count)
        })?;
        Ok(count)
    }
}
