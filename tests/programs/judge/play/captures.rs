//! Captures and graphs.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::slots::{Capture, Graph, lock};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn captures(&mut self, line: &Line) -> Seen {
        let (driver, slots, slot) = (self.driver(), self.slots(), line.arg(0));
        match line.op {
            Op::CaptureBegin => {
                let stream = self.stream(slot)?;
                let began = driver.begin_capture(stream.handle, line.arg(1) as u32);
                if began.is_ok() {
                    *lock(&stream.capture) = Some(Capture::begun());
                }
                code(began)
            }
            Op::CaptureEnd => self.end_capture(line),
            Op::CaptureStatus => match driver.capture_status(self.stream(slot)?.handle) {
                Ok(status) => Some((0, vec![status.into()])),
                Err(error) => code(Err(error)),
            },
            Op::CaptureMode => match driver.exchange_capture_mode(slot as u32) {
                Ok(before) => Some((0, vec![before.into()])),
                Err(error) => code(Err(error)),
            },
            Op::Instantiate | Op::InstantiateUploaded => {
                let graph = slots.graphs.get(line.arg(1)).filter(|_| slots.execs.is_free(slot))?;
                let uploads = line.op == Op::InstantiateUploaded;
                let made = match slot % 3 {
                    _ if uploads => {
                        let stream = self.stream(line.arg(2))?.handle;
                        self.instantiate_with_params(graph.handle, UPLOAD, stream)
                    }
                    0 => driver.instantiate(graph.handle),
                    1 => self.instantiate_with_params(graph.handle, 0, 0),
                    _ => self.instantiate_with_log(graph.handle),
                };
                if let Ok(handle) = made {
                    slots.execs.put(slot, Graph { handle, ..graph });
                }
                code(made.map(drop))
            }
            Op::Launch => {
                let (exec, stream) = (slots.execs.get(slot)?, self.stream(line.arg(1))?);
                let launched = driver.launch_graph(exec.handle, stream.handle);
                if launched.is_ok() {
                    exec.fills.iter().for_each(|filled| filled.store(true, Ordering::SeqCst));
                }
                code(launched)
            }
            Op::GraphBuild => self.build_graph(line),
            Op::ExecSet => self.set_fill(line),
            Op::Upload => {
                let (exec, stream) = (slots.execs.get(slot)?, self.stream(line.arg(1))?);
                code(call!(driver, cuGraphUpload(exec.handle, stream.handle)))
            }
            Op::ExecUpdate => self.update(line),
            Op::ExecDestroy => {
                let exec = slots.execs.get(slot)?;
                slots.execs.clear(slot);
                code(driver.destroy_executable(exec.handle))
            }
            Op::GraphClone => {
                let graph = slots.graphs.get(line.arg(1)).filter(|_| slots.graphs.is_free(slot))?;
                let mut handle = 0;
                let cloned = call!(driver, cuGraphClone(&mut handle, graph.handle));
                if cloned.is_ok() {
                    slots.graphs.put(slot, Graph { handle, ..graph });
                }
                code(cloned)
            }
            _ => {
                let graph = slots.graphs.get(slot)?;
                slots.graphs.clear(slot);
                code(driver.destroy_graph(graph.handle))
            }
        }
    }

    fn instantiate_with_params(&self, graph: u64, flags: u64, stream: u64) -> Outcome<u64> {
        // As CUDA_GRAPH_INSTANTIATE_PARAMS.
        let (mut exec, mut params) = (0, [flags, stream, 0, 0]);
        let driver = self.driver();
        call!(driver, cuGraphInstantiateWithParams(&mut exec, graph, params.as_mut_ptr()))?;
        Ok(exec)
    }

    fn instantiate_with_log(&self, graph: u64) -> Outcome<u64> {
        let (mut exec, mut node, mut log) = (0, 0, [0_u8; 64]);
        let (place, room, driver) = (log.as_mut_ptr(), log.len(), self.driver());
        call!(driver, cuGraphInstantiate(&mut exec, graph, &mut node, place, room))?;
        Ok(exec)
    }

    fn end_capture(&mut self, line: &Line) -> Seen {
        let stream = self.stream(line.arg(0))?;
        let ended = driver_end(self, stream.handle);
        if let Some(capture) = stream.capture() {
            capture.over.store(true, Ordering::SeqCst);
            let (fills, life) = (lock(&capture.fills).clone(), lock(&capture.life).take());
            if let Ok(handle) = ended {
                let graph = Graph { handle, fills, life, fill: None, ctx: stream.ctx.clone() };
                if self.slots().graphs.is_free(line.arg(1)) {
                    self.slots().graphs.put(line.arg(1), graph);
                }
            }
        }
        code(ended.map(drop))
    }

    fn update(&mut self, line: &Line) -> Seen {
        let (slot, graph) = (line.arg(0), self.slots().graphs.get(line.arg(1))?);
        let exec = self.slots().execs.get(slot)?;
        let mut result = [0_u64; 4];
        let place = result.as_mut_ptr().cast();
        let updated = call!(self.driver(), cuGraphExecUpdate(exec.handle, graph.handle, place));
        if updated.is_ok() {
            self.slots().execs.put(slot, Graph { fills: graph.fills, life: graph.life, ..exec });
        }
        code(updated)
    }
}

const UPLOAD: u64 = 2;

fn driver_end(actor: &Actor<'_>, stream: u64) -> Result<u64, i32> {
    actor.driver().end_capture(stream)
}
