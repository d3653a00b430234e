import * as z from "zod";
import { DeploymentId } from "./formats.ts";

export const LOG_LINES_DEFAULT = 100;
export const LOG_LINES_MAX = 10_000;
export const LogLineCount = z.int().min(1).max(LOG_LINES_MAX);

/** 0 is the file being written, 1 the newest rotated one. A number: a name could walk out of its directory. */
export const LogFile = z.int().min(0).max(99);
export type LogFile = z.infer<typeof LogFile>;

/** A place in a log. Its meaning is the node's own; others hand it back as they got it. */
export const LogPosition = z.string().max(256);
export type LogPosition = z.infer<typeof LogPosition>;

/** Which lines to read: the last ones of a file, or those from a position on. */
export const LogSelection = z.object({
  deployment_id: DeploymentId,
  lines: LogLineCount.optional(),
  file: LogFile.optional(),
  from: LogPosition.optional(),
});
export type LogSelection = z.infer<typeof LogSelection>;

export const LogLines = z.object({
  lines: z.array(z.string()).max(LOG_LINES_MAX),
  /** Where to go on. */
  next: LogPosition,
});
export type LogLines = z.infer<typeof LogLines>;

/** Lines read through HTTP: from which node, and which files it has. */
export const LogPage = LogLines.extend({
  deployment_id: DeploymentId,
  address: z.string(),
  file: LogFile,
  files: z.array(LogFile),
});
export type LogPage = z.infer<typeof LogPage>;
