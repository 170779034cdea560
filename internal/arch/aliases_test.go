package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAliasesListFields: go doc shows of an alias only its comment. So the comments of the face's
// aliases of structs of the engine list all exported fields, with their types.
func TestAliasesListFields(t *testing.T) {
	const face, engine = "../../probe/api.go", "../../probe/engine"
	structs := structsOf(t, engine)
	file, err := parser.ParseFile(token.NewFileSet(), face, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, d := range file.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE || len(gen.Specs) != 1 {
			continue
		}
		spec := gen.Specs[0].(*ast.TypeSpec)
		of, ok := spec.Type.(*ast.SelectorExpr)
		if !ok || types.ExprString(of.X) != "engine" || structs[of.Sel.Name] == nil {
			continue
		}
		seen++
		var listed []string
		for line := range strings.Lines(gen.Doc.Text()) {
			if strings.HasPrefix(line, "\t") {
				listed = append(listed, strings.TrimSpace(line)+"  ")
			}
		}
		for _, f := range structs[of.Sel.Name].Fields.List {
			for _, name := range f.Names {
				want := name.Name + " " + types.ExprString(f.Type)
				if name.IsExported() && !anyStarts(listed, want+" ") {
					t.Errorf("%s: the comment of %s lacks the field %q", face, spec.Name.Name, want)
				}
			}
		}
	}
	if seen == 0 {
		t.Errorf("%s has no alias of a struct of the engine", face)
	}
}

func anyStarts(list []string, with string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, with) {
			return true
		}
	}
	return false
}

// structsOf are the structs that a package's files declare, by name.
func structsOf(t *testing.T, dir string) map[string]*ast.StructType {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files: %v", dir, err)
	}
	out := map[string]*ast.StructType{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					out[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return out
}
