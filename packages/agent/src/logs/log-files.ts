import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";

/**
 * Returns the path of a log file. Files keep their numbers: a rotation adds the next one and removes the oldest. If files
 * were renamed instead, a position would mean another line after a rotation.
 */
export function logFilePath(directory: string, number: number): string {
  return join(directory, `${String(number).padStart(8, "0")}.log`);
}

/** Returns the numbers of the files, newest first. */
export async function listLogFiles(directory: string): Promise<number[]> {
  const names = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  return names
    .map((name) => /^(\d{8,15})\.log$/.exec(name)?.[1])
    .filter((digits) => digits !== undefined)
    .map(Number)
    .sort((a, b) => b - a);
}

export async function removeOldLogFiles(directory: string, filesMax: number): Promise<void> {
  const old = (await listLogFiles(directory)).slice(filesMax);
  for (const number of old) await rm(logFilePath(directory, number), { force: true });
}

/** A position in a log: the byte of a file where the next line begins. */
export interface LogPosition {
  number: number;
  offset: number;
}

export const formatPosition = ({ number, offset }: LogPosition): string => `${number}:${offset}`;

export function parsePosition(text: string): LogPosition | undefined {
  const [, number, offset] = /^(\d{1,15}):(\d{1,15})$/.exec(text) ?? [];
  return number === undefined ? undefined : { number: Number(number), offset: Number(offset) };
}
