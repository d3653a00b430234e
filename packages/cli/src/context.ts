/** What a command leaves behind for the process: commands set it, `main` answers it. */
export interface Context {
  exitCode: number;
  /** Set by a command that is there for what it does, not for what it prints: a server, a node-unit. */
  keepsRunning?: boolean;
}
