//! The end of every program: its contexts are waited for, and everything that it has written is
//! looked at.

use super::Actor;
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn look_at_everything(&mut self) {
        if self.player.ends_at_once {
            return;
        }
        let streams = self.slots().streams.all();
        let open = streams.iter().filter_map(|stream| stream.capture()).count();
        if open > 0 {
            // A wait would end the capture: the program has its reasons.
            return;
        }
        let mut next = self.player.lines;
        let line = |op, slot| Line { thread: 0, op, args: vec![slot] };
        for slot in 0..16 {
            if self.slots().contexts.get(slot).is_some() {
                self.at(&mut next, &line(Op::CtxSet, slot));
                self.at(&mut next, &line(Op::CtxSync, 0));
            }
        }
        for slot in 0..256 {
            let Some(block) = self.slots().blocks.get(slot) else { continue };
            if self.make_current(&block.ctx).is_ok() {
                self.at(&mut next, &line(Op::Read, slot));
            }
        }
        for slot in 0..64 {
            if self.slots().hosts.get(slot).is_some() {
                self.at(&mut next, &line(Op::HostRead, slot));
            }
        }
    }

    fn at(&mut self, next: &mut usize, line: &Line) {
        self.play(*next, line);
        *next += 1;
    }
}
