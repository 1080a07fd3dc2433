//! Compiling expressions on a stack that holds deep ones: the planner of expressions recurses, with
//! large frames, once for each operator of a chain such as `a + b + c + ...`.

/// Enough for an expression of [`crate::sql::MOST_TOKENS`] tokens; only what is used is paged in.
const STACK: usize = 256 << 20;

/// Runs `work` on a thread with a deep stack.
pub(crate) fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("expressions".to_owned()).stack_size(STACK);
        match builder.spawn_scoped(scope, work) {
            Ok(thread) => match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            },
            // Without memory for a thread there is nothing that could be compiled either.
            Err(error) => std::panic::panic_any(format!("no thread to compile expressions: {error}")),
        }
    })
}
