export function bearerOf(header: string | undefined): string | undefined {
  return /^Bearer ([^\s]+)$/i.exec(header ?? "")?.[1];
}
