//! Native stacks: an unwinder over .eh_frame with a rule cache, the modules of the process, symbols.
