import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";

/**
 * The files of one log are numbered and keep their numbers: rotating begins the next one and removes the oldest. With
 * names that move from file to file, a position read before a rotation would mean another line after it.
 */
export function logFilePath(directory: string, number: number): string {
  return join(directory, `${String(number).padStart(8, "0")}.log`);
}

/** Numbers of the files there are, newest first. */
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

/** A place in a log: the byte of a file where the next line begins. */
export interface LogPlace {
  number: number;
  offset: number;
}

export const formatPlace = ({ number, offset }: LogPlace): string => `${number}:${offset}`;

export function parsePlace(text: string): LogPlace | undefined {
  const [, number, offset] = /^(\d{1,15}):(\d{1,15})$/.exec(text) ?? [];
  return number === undefined ? undefined : { number: Number(number), offset: Number(offset) };
}
