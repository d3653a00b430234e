import { afterEach, describe, expect, test, vi } from "vitest";
import { chosen, readCommandLine } from "./command-line.ts";

const read = (...args: string[]) =>
  readCommandLine("how it is meant", { args, options: { seed: { type: "string", default: "1" } } });

function watchEnd() {
  vi.spyOn(process, "exit").mockImplementation((code) => {
    throw new Error(`ended with ${code}`);
  });
  return {
    told: vi.spyOn(console, "error").mockImplementation(() => {}),
    printed: vi.spyOn(console, "log").mockImplementation(() => {}),
  };
}

describe("the command line of the project's own commands", () => {
  afterEach(() => vi.restoreAllMocks());

  test("a command line has the given options, and defaults for the others", () => {
    expect(read("--seed", "7").values.seed).toBe("7");
    expect(read().values.seed).toBe("1");
  });

  test("an unknown option exits with 2, the problem and the usage", () => {
    const { told } = watchEnd();
    expect(() => read("--sed", "7")).toThrow("ended with 2");
    expect(told).toHaveBeenCalledWith(expect.stringMatching(/'--sed'.*how it is meant$/s));
  });

  test.each(["x", "", "1.5", "0"])("%j is not a number of at least 1", (text) => {
    const { told } = watchEnd();
    expect(() => read().numberOf("seed", text, { least: 1 })).toThrow("ended with 2");
    expect(told).toHaveBeenCalledWith(
      expect.stringContaining(`--seed ${text}: not a whole number`),
    );
  });

  test("prints its usage and ends well when asked how it is meant", () => {
    const { printed } = watchEnd();
    expect(() => read("--help")).toThrow("ended with 0");
    expect(printed).toHaveBeenCalledWith("how it is meant");
  });

  test("chooses by name, all where none is named, and refuses a name that is none", () => {
    const things = [{ name: "a" }, { name: "b" }];
    const refuse = (problem: string): never => {
      throw new Error(problem);
    };
    expect(chosen(things, ["b"], refuse)).toEqual([{ name: "b" }]);
    expect(chosen(things, [], refuse)).toEqual(things);
    expect(() => chosen(things, ["b", "c"], refuse)).toThrow("there is no c");
  });
});
