//! The threads of a program: each starts with its first line, and ends with `thread_end`.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};

use super::Actor;
use crate::grammar::{Line, Op, THREADS_MAX};

/// A thread that plays the lines with the numbers it receives, and reports when it is done.
struct Member<'scope> {
    orders: Sender<Vec<usize>>,
    done: Receiver<()>,
    thread: ScopedJoinHandle<'scope, ()>,
}

struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    lines: &'env [Line],
    player: &'env super::Player,
    members: [Option<Member<'scope>>; THREADS_MAX],
}

pub fn play_all(main: &mut Actor<'_>, lines: &[Line]) {
    let player = main.player;
    std::thread::scope(|scope| {
        let mut crew = Crew { scope, lines, player, members: Default::default() };
        let mut at = 0;
        while at < lines.len() {
            at = match lines[at].op {
                Op::Together => crew.together(main, at + 1),
                _ => crew.in_turn(main, at),
            };
        }
        for index in 1..THREADS_MAX {
            crew.end(index);
        }
    });
}

impl Crew<'_, '_> {
    /// Plays a run of lines of one thread, and returns where the next run begins.
    fn in_turn(&mut self, main: &mut Actor<'_>, start: usize) -> usize {
        let thread = self.lines[start].thread;
        let ours = |line: &&Line| line.thread == thread && line.op != Op::Together;
        let mut end = start + self.lines[start..].iter().take_while(ours).count();
        let ends = self.lines[start..end].iter().position(|line| line.op == Op::ThreadEnd);
        if let Some(place) = ends {
            end = start + place + 1;
        }
        let own: Vec<usize> = (start..end).collect();
        if thread == 0 {
            own.iter().for_each(|index| main.play(*index, &self.lines[*index]));
        } else {
            self.order(thread, own);
            self.wait_for(thread);
            if ends.is_some() {
                self.end(usize::from(thread));
            }
        }
        end
    }

    /// Plays the lines before the next `joined`, with all threads at once.
    fn together(&mut self, main: &mut Actor<'_>, start: usize) -> usize {
        let length = self.lines[start..].iter().take_while(|line| line.op != Op::Joined).count();
        let end = start + length;
        let of = |thread: u8| -> Vec<usize> {
            (start..end).filter(|index| self.lines[*index].thread == thread).collect()
        };
        let lists: Vec<Vec<usize>> = (0..THREADS_MAX as u8).map(of).collect();
        let busy: Vec<u8> =
            (1..THREADS_MAX as u8).filter(|t| !lists[*t as usize].is_empty()).collect();
        for thread in &busy {
            self.order(*thread, lists[usize::from(*thread)].clone());
        }
        lists[0].iter().for_each(|index| main.play(*index, &self.lines[*index]));
        for thread in &busy {
            self.wait_for(*thread);
            let list = &lists[usize::from(*thread)];
            if list.iter().any(|index| self.lines[*index].op == Op::ThreadEnd) {
                self.end(usize::from(*thread));
            }
        }
        (end + 1).min(self.lines.len())
    }

    fn order(&mut self, thread: u8, list: Vec<usize>) {
        let (player, lines, scope) = (self.player, self.lines, self.scope);
        let member = self.members[usize::from(thread)].get_or_insert_with(|| {
            let (orders, inbox) = channel::<Vec<usize>>();
            let (outbox, done) = channel();
            let work = move || {
                let mut actor = Actor::new(player);
                for list in inbox {
                    list.iter().for_each(|index| actor.play(*index, &lines[*index]));
                    if outbox.send(()).is_err() {
                        return;
                    }
                }
                actor.leave_own_stream();
            };
            Member { orders, done, thread: scope.spawn(work) }
        });
        member.orders.send(list).expect("a thread ends only on request");
    }

    fn wait_for(&mut self, thread: u8) {
        let member = self.members[usize::from(thread)].as_ref().expect("it was given lines");
        member.done.recv().expect("a thread answers each order");
    }

    /// Joins the thread: everything that its end runs has then run.
    fn end(&mut self, index: usize) {
        if let Some(Member { orders, thread, .. }) = self.members[index].take() {
            drop(orders);
            thread.join().expect("no thread of a program panics");
        }
    }
}
