import { computed, signal } from "@preact/signals";

export const CHOICES = ["system", "light", "dark"] as const;
export type Choice = (typeof CHOICES)[number];

const KEY = "tenure-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => {
  isSystemDark.value = system.matches;
});

export const themeChoice = signal<Choice>(stored());

/** What is seen now. */
export const theme = computed(() => {
  if (themeChoice.value !== "system") return themeChoice.value;
  return isSystemDark.value ? "dark" : "light";
});

export function chooseTheme(choice: Choice): void {
  localStorage.setItem(KEY, choice);
  themeChoice.value = choice;
  applyTheme();
}

export function applyTheme(): void {
  const { dataset } = document.documentElement;
  if (themeChoice.value === "system") delete dataset.theme;
  else dataset.theme = themeChoice.value;
}

function stored(): Choice {
  const choice = localStorage.getItem(KEY);
  return CHOICES.find((known) => known === choice) ?? "system";
}
