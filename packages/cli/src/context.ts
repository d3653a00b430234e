/** What a command leaves behind for the process: commands set it, `main` answers it. */
export interface Context {
  exitCode: number;
}
