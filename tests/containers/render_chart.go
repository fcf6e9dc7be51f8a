// render_chart CHART VALUES prints the objects that a Helm chart makes of its values and VALUES, a JSON object that goes over
// them; without arguments, those that are read as YAML. They are printed as a JSON array. The engine is what Helm itself is made of: Go's text/template with the functions of Sprig; the few functions
// that Helm adds, as far as the chart uses them, are below.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type files struct{ folder string }

func (f files) Get(path string) string {
	return read(filepath.Join(f.folder, path))
}

func read(path string) string {
	text, err := os.ReadFile(path)
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render_chart:", err)
		os.Exit(1)
	}
}

func object(text string) map[string]interface{} {
	found := map[string]interface{}{}
	check(yaml.Unmarshal([]byte(text), &found))
	return found
}

func main() {
	text, err := "", error(nil)
	if len(os.Args) == 3 {
		text = rendered(os.Args[1], os.Args[2])
	} else {
		var bytes []byte
		bytes, err = io.ReadAll(os.Stdin)
		text = string(bytes)
	}
	check(err)
	all := []interface{}{}
	for from := yaml.NewDecoder(strings.NewReader(text)); ; {
		var one interface{}
		if err = from.Decode(&one); err == io.EOF {
			break
		}
		check(err)
		if one != nil {
			all = append(all, one)
		}
	}
	check(json.NewEncoder(os.Stdout).Encode(all))
}

func rendered(chart, overrides string) string {
	values := object(read(filepath.Join(chart, "values.yaml")))
	given := map[string]interface{}{}
	check(json.Unmarshal([]byte(overrides), &given))
	for name, value := range given {
		if _, known := values[name]; !known {
			check(fmt.Errorf("%s is not among the chart's values", name))
		}
		values[name] = value
	}
	all := template.New("").Option("missingkey=zero")
	all.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"fromYaml": object,
		"toYaml": func(value interface{}) string {
			text, err := yaml.Marshal(value)
			check(err)
			return strings.TrimSuffix(string(text), "\n")
		},
		"include": func(name string, data interface{}) (string, error) {
			var text strings.Builder
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
	})
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	for _, path := range paths {
		template.Must(all.New(filepath.Base(path)).Parse(read(path)))
	}
	var text strings.Builder
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		check(all.ExecuteTemplate(&text, filepath.Base(path), map[string]interface{}{
			"Values": values, "Files": files{chart}, "Release": map[string]interface{}{"Name": "fracgpu", "Namespace": "default"}}))
	}
	return text.String()
}
