/** Times of the world. The defaults of the product would make every run five times as long and show nothing more. */
export interface Settings {
  presenceTtlMs: number;
  refreshIntervalMs: number;
  copyIntervalMs: number;
  movesIntervalMs: number;
  heartbeatIntervalMs: number;
  pingEveryMs: number;
  intervalMs: number;
  callTimeoutMs: number;
  selfStopMs: number;
  stopGraceMs: number;
  /** A planted bug: a node of policy `none` is believed when it asks for something. */
  trustsCallers: boolean;
}

export const SETTINGS: Settings = {
  presenceTtlMs: 20_000,
  refreshIntervalMs: 2_000,
  copyIntervalMs: 5_000,
  movesIntervalMs: 5_000,
  heartbeatIntervalMs: 5_000,
  pingEveryMs: 5_000,
  intervalMs: 5_000,
  callTimeoutMs: 4_000,
  selfStopMs: 12_000,
  stopGraceMs: 3_000,
  trustsCallers: false,
};
