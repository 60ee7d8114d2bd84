/** Whether a route's template lies in a scope: the template itself, or what `/*` at a slash stands for. */
export function isInScope(template: string, scope: string): boolean {
  if (!scope.endsWith('*')) return template === scope;
  return template.startsWith(scope.slice(0, -1));
}
