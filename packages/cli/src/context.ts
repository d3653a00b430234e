/** State that a command sets for the process; `main` returns the exit code. */
export interface Context {
  exitCode: number;
  /** Set by a server or a node-unit, which outlives a closed output. */
  keepsRunning?: boolean;
}
